#pragma once
#include <ATen/ATen.h>

#include <string>

#include "kernels/depth_read/history.h"

namespace mhar::ops {

/// The reads of one pass over the depth: R sites over R sources, D, H.
struct DepthReads {
  int64_t sites, width, heads;
  double eps = 1e-6;
  int64_t chunk = 0;  ///< chunk length asked for; 0: planned from the shape
};

/// The chunked implementation that serves a shape, or why there is none.
struct DepthEngine {
  const kernels::DepthKernels* kernels = nullptr;
  std::string passed_over;  ///< why a faster one does not serve: empty, or "hopper: takes no ..."

  /// "chunked (cpu)", "chunked (cuda; hopper: ...)": for logs.
  std::string name() const;
};

kernels::DepthSizes depth_sizes(const DepthReads& reads, int64_t tokens, at::ScalarType type);

/// Storage types: fp32, bf16, fp16, and fp64 on the CPU.
DepthEngine depth_engine(const DepthReads& reads, int64_t tokens, at::ScalarType type, at::Device device);

kernels::DepthPlan depth_plan(const DepthEngine& engine, const DepthReads& reads, int64_t sites, int64_t tokens,
                              at::ScalarType type);

/// What kernels get as their queue: the current CUDA stream of the device, or LibTorch's threads.
void* depth_queue(at::Device device);

/// Throws std::runtime_error naming the pass when a kernel's status is not 0.
void require_launched(const char* pass, int status);

}  // namespace mhar::ops
