#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "ops/depth_engine.h"

namespace mhar::ops {

/// All depth reads of one forward pass on the chunked engine, with their gradients: Eq. 1 to 10 and 37 to 41. It owns
/// the sources and the mixes; both live until the last of this object and the graph made with it is gone.
///
/// One autograd node a site, chained so that the backward pass runs from the last site to the first whatever else the
/// graph holds, and one node that hands out the gradients of all queries, gains and norm weights at the end. The loss
/// may be taken at any site: the first backward call fixes the last one that takes part.
///
/// Single use: dO replaces o and a source's slot is used again once its gradient is out. A second backward, a
/// differentiable backward, a step after the backward has begun and a step out of order throw std::logic_error.
class DepthHistory {
 public:
  /// The engine must have kernels. P tokens of a storage type on a device.
  DepthHistory(const DepthEngine& engine, const DepthReads& reads, int64_t tokens, at::ScalarType type,
               at::Device device);
  ~DepthHistory();
  DepthHistory(DepthHistory&&) noexcept;

  /// Per site: query ([D] or [1, D]), key gain [D] and the weight of the RMSNorm that follows [D], all of the storage
  /// type. Before the first step. Throws std::invalid_argument for another number, shape or type.
  void open(const std::vector<at::Tensor>& queries, const std::vector<at::Tensor>& gains,
            const std::vector<at::Tensor>& norms);

  /// Where source `index` belongs, [P, D]: an operation that writes there spares step() a copy (ops/linear.h). The
  /// tensor is its own, not a view of others: writing one slot does not disturb what was saved of another.
  at::Tensor slot(int64_t index) const;

  /// Takes the next source [P, D] (copied unless it lies in its slot) and returns RMSNorm(o) [P, D] of its site.
  at::Tensor step(const at::Tensor& source);

  /// Softmax weights [site + 1, P, H] of a site that has been read, from the stored statistics, without gradient.
  at::Tensor weights(int64_t site) const;
  /// The mix o [P, D] of a site that has been read, before its norm. A copy, without gradient.
  at::Tensor mix(int64_t site) const;

  struct Memory;

 private:
  c10::intrusive_ptr<Memory> memory_;
  at::Tensor token_;  // chains the nodes
};

}  // namespace mhar::ops
