#pragma once
// What the CPU's passes of one backward chunk leave for one another in BackwardChunk::scratch.
#include <cstdint>

#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels {
namespace {

/// Sums over tokens are taken over this many ranges at most, fixed by P alone, and added in order: the bits of the
/// result do not depend on the threads.
constexpr int64_t kTokenRanges = 64;

/// da * rho of each pair of source and site, S [count, H, P, sites - first + 1], where the last number of a row is only
/// there to be read by a pair of sites that has one; then sums of dy * o / rms,
/// S [count, kTokenRanges, D].
struct CpuScratch {
  int64_t heads, tokens, width, rows, statistic;
  int64_t norm_bytes;  ///< offset of the second part
  char* base;

  CpuScratch(const DepthSizes& z, const BackwardChunk& chunk)
      : CpuScratch(z, chunk.sites - chunk.first, chunk.count, chunk.scratch) {}
  CpuScratch(const DepthSizes& z, int64_t sites, int64_t count, void* memory)
      : heads(z.heads),
        tokens(z.tokens),
        width(z.width),
        rows(sites + 1),
        statistic(z.statistic_bytes()),
        norm_bytes((count * heads * tokens * rows * statistic + 63) / 64 * 64),
        base(static_cast<char*>(memory)) {}

  static int64_t bytes(const DepthSizes& z, int64_t sites, int64_t longest_chunk) {
    const CpuScratch all(z, sites, longest_chunk, nullptr);
    return all.norm_bytes + longest_chunk * kTokenRanges * z.width * all.statistic;
  }

  /// Of a source (counted within the chunk) and head, one number per site from chunk.first on.
  template <typename A>
  A* pairs(int64_t column, int64_t head, int64_t token) const {
    return reinterpret_cast<A*>(base) + ((column * heads + head) * tokens + token) * rows;
  }
  template <typename A>
  A* norm_sums(int64_t site, int64_t range) const {
    return reinterpret_cast<A*>(base + norm_bytes) + (site * kTokenRanges + range) * width;
  }

  int64_t range_length() const { return (tokens + kTokenRanges - 1) / kTokenRanges; }
  int64_t ranges() const { return (tokens + range_length() - 1) / range_length(); }
};

}  // namespace
}  // namespace mhar::kernels
