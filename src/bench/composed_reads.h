#pragma once
#include "bench/full_reads.h"
#include "ops/depth_read.h"

namespace mhar::bench {

/// The same reads composed of tensor operations (ops/depth_read.h), forward and backward through autograd. Each site is
/// a graph of its own; a source's gradient collects over its sites in the compute type and is rounded once.
class ComposedReads : public Subject {
 public:
  explicit ComposedReads(const Setup& setup, int64_t tokens);

  int64_t steps() const override { return reads_.sites; }
  void restore() override;
  void forward(int64_t site) override;
  void backward(int64_t site) override;

 private:
  ops::DepthReads reads_;
  at::Tensor stored_, keys_, norm_, normed_gradient_;  // [R, P, D], S [R, D], [D], dy [P, D]
  std::vector<ops::DepthSource> sources_;
  std::vector<at::Tensor> site_keys_, outputs_;
};

}  // namespace mhar::bench
