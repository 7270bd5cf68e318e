#include "kernels/depth_read/cuda_passes.h"

namespace mhar::kernels {
namespace {

const char* refuses(const DepthSizes& z, int64_t sites) {
  if (z.type == Element::f64) return "fp64";
  return sites > portable::kMostSites ? "more than 1024 sources" : nullptr;
}

int64_t scratch_bytes(const DepthSizes& z, int64_t sites, int64_t longest_chunk) {
  // Fewer sites may have their tokens in so many more parts that they take more.
  int64_t most = 0;
  for (int64_t behind = 1; behind <= sites; ++behind) {
    most = std::max(most, portable::scratch_of(z, behind, longest_chunk).bytes);
  }
  return most;
}

}  // namespace

const DepthKernels& depth_kernels_cuda() {
  static constexpr DepthKernels kernels{
      .name = "cuda",
      .longest_chunk = kMostNear,
      .finishes = true,
      .refuses = refuses,
      .scratch_bytes = scratch_bytes,
      .far_forward = portable::far_forward,
      .near_forward = portable::near_forward,
      .near_backward = portable::near_backward,
      .far_backward = portable::far_backward,
      .chunk_gradients = portable::chunk_gradients,
  };
  return kernels;
}

}  // namespace mhar::kernels
