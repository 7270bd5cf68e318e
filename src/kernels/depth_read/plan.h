#pragma once
// How sites and sources are cut into chunks, and the bytes that the passes of a plan move: the one count that
// benchmarks, the planner and the documents share.
#include <cstdint>
#include <vector>

#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels {

/// Chunk lengths from site 0 (source 0) upwards; each list adds up to the number of sites.
struct DepthPlan {
  std::vector<int64_t> forward, backward;
};

/// What launches cost beyond their bytes, as bytes that could move in the meantime.
struct DepthCosts {
  int64_t near = 0;       ///< every near pass
  int64_t far_least = 0;  ///< a far pass never costs less than this
};
/// An H200: about 2 us for a near pass and 22 us for the shortest far pass at 4.3 TB/s (docs/log.md).
inline constexpr DepthCosts kGpuDepthCosts{8'000'000, 95'000'000};

/// The plan of least cost for R >= 1 sites; `chunk` > 0 asks for chunks of that length instead (the first ones are
/// longer or shorter where the sites do not divide).
/// A backward chunk that is not the newest has at least as many sites behind it, whose slots take its partial sums.
DepthPlan plan_depth(const DepthKernels& kernels, const DepthSizes& sizes, int64_t sites, const DepthCosts& costs,
                     int64_t chunk = 0);

/// Whether a plan fits: lengths of 1 .. longest_chunk that add up, room for partial sums.
bool fits(const DepthKernels& kernels, const DepthPlan& plan, int64_t sites);

/// Bytes read and written by all passes of a plan, the norms and parameter gradients included.
int64_t depth_forward_bytes(const DepthKernels& kernels, const DepthSizes& sizes, const DepthPlan& plan);
int64_t depth_backward_bytes(const DepthKernels& kernels, const DepthSizes& sizes, const DepthPlan& plan);

}  // namespace mhar::kernels
