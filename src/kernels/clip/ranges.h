#pragma once
// What the CPU loop and the CUDA kernel share.
#include <cmath>

#include "kernels/clip/clip.h"
#include "kernels/host_device.h"

namespace mhar::kernels {

/// Ranges of whole vectors of 16 bytes, and not so short that a thread block has nothing to do.
struct ClipRanges {
  int64_t length, ranges;

  explicit ClipRanges(int64_t count) {
    constexpr int64_t kMost = 1024, kShortest = 16384, kVector = 8;
    const int64_t share = (count + kMost - 1) / kMost;
    length = ((share < kShortest ? kShortest : share) + kVector - 1) / kVector * kVector;
    ranges = (count + length - 1) / length;
  }
};

MHAR_HOST_DEVICE inline bool is_finite(float x) { return x - x == 0.0f; }

/// Eq. 25, and the flag.
MHAR_HOST_DEVICE inline void finish_clip(const ClipArguments& a, float squares) {
  const float norm = sqrtf(squares);
  const double factor = a.limit / (static_cast<double>(norm) + 1e-6);
  a.clip->norm = norm;
  a.clip->factor = static_cast<float>(factor < 1.0 ? factor : 1.0);
  bool finite = is_finite(norm);
  for (int64_t i = 0; i < a.microbatches; ++i) finite = finite && is_finite(a.losses[i]);
  if (!finite) a.clip->stopped = 1;
}

}  // namespace mhar::kernels
