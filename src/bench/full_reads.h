#pragma once
#include "bench/shapes.h"
#include "bench/timing.h"
#include "ops/depth_engine.h"

namespace mhar::bench {

/// How the chunked engine serves a shape.
struct Setup {
  ops::DepthEngine engine;
  ops::DepthReads reads;
  kernels::DepthPlan plan;
  at::ScalarType type = at::kBFloat16;
  at::Device device = at::kCPU;
};

/// Random keys S [rows, D] whose logits have a standard deviation of about 1.5.
at::Tensor random_keys(int64_t rows, const ops::DepthReads& reads, const at::TensorOptions& statistics);
/// A norm's weight [D], near 1.
at::Tensor random_weight(int64_t width, const at::TensorOptions& values);

/// Site r reads sources 0 .. r and norms what it read, through the driver that training uses, and back: ds of every
/// source, dw and the norms' weight gradients.
class FullReads : public Subject {
 public:
  FullReads(const Setup& setup, int64_t tokens);

  int64_t steps() const override { return forward_.sites; }
  void restore() override { sources.copy_(kept_); }
  void forward(int64_t site) override;
  void backward(int64_t site) override;

  /// Bytes of all buffers beyond sources and mixes, one ds among them.
  int64_t extra_bytes() const;

  at::Tensor sources, mixes;           // [R, P, D]
  at::Tensor keys, key_gradients;      // S [R, D]
  at::Tensor norms;                    // [R, D], the weights
  at::Tensor normed, normed_gradient;  // y and dy [P, D]
  at::Tensor source_gradient;          // ds [P, D]
  at::Tensor norm_gradients;           // S [R, D]

 private:
  kernels::DepthMemory memory() const;

  at::Device device_;
  kernels::DepthHistoryRun forward_;
  at::Tensor kept_;                            // the sources: a backward pass leaves partial sums there
  at::Tensor rho_, norm_rho_, lse_;            // S [R, P], S [R, P], S [R, P, H]
  at::Tensor deltas_, through_rho_, scratch_;  // S [R, P, H], S [longest chunk, P, H], bytes
};

}  // namespace mhar::bench
