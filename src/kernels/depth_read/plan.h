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

/// Bytes of [P, D] values and of [P, H], [P] and [D] statistics: what buffers are apart, and what passes move.
struct DepthBytes {
  int64_t value, head, token, width;

  explicit DepthBytes(const DepthSizes& z)
      : value(z.value_bytes()),
        head(z.tokens * z.heads * z.statistic_bytes()),
        token(z.tokens * z.statistic_bytes()),
        width(z.width * z.statistic_bytes()) {}
};

/// What launches cost beyond their bytes, as bytes that could move in the meantime.
struct DepthCosts {
  int64_t near = 0, far = 0;  ///< of every near and every far pass
};
/// An H200 at 4.3 TB/s: 7 us of a near pass and 28 us of a far pass, with a chunk's gradients, are not bytes
/// (docs/log.md, 2026-11-30).
inline constexpr DepthCosts kGpuDepthCosts{30'000'000, 120'000'000};

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
