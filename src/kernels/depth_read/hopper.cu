#include <cuda_runtime.h>

#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_near.h"
#include "kernels/depth_read/hopper_scratch.h"

namespace mhar::kernels {
namespace {

constexpr int64_t kMostSites = 1024;

// The code is of sm_90a, which runs on 9.0 and nothing later either.
bool on_hopper() {
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major == 9;
}

const char* refuses(const DepthSizes& z, int64_t sites) {
  if (!on_hopper()) return "device but those of compute capability 9.0";
  if (z.type != Element::bf16) return "storage type but bf16";
  if (sites > kMostSites) return "more than 1024 sources";
  if (z.channels() % 16 != 0) return "heads whose width is no multiple of 16";
  if (z.width > hopper::kMostSlices * hopper::kWidestSlice) return "width above 2560";
  if (!hopper::far_backward_takes(z)) return "heads that do not split evenly among the warps of a block";
  return hopper::near_refuses(z);
}

int64_t scratch_bytes(const DepthSizes& z, int64_t sites, int64_t /*longest_chunk*/) {
  return hopper::scratch_of(z, sites).bytes;
}

}  // namespace

const DepthKernels& depth_kernels_hopper() {
  static constexpr DepthKernels kernels{
      .name = "hopper",
      .longest_chunk = static_cast<int>(hopper::kChunk),
      .finishes = true,
      .refuses = refuses,
      .scratch_bytes = scratch_bytes,
      .far_forward = hopper::far_forward_hopper,
      .near_forward = hopper::near_forward_hopper,
      .near_backward = hopper::near_backward_hopper,
      .far_backward = hopper::far_backward_hopper,
      .chunk_gradients = hopper::chunk_gradients_hopper,
  };
  return kernels;
}

}  // namespace mhar::kernels
