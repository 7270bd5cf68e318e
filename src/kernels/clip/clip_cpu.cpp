#include "kernels/bfloat16.h"
#include "kernels/clip/clip.h"
#include "kernels/clip/ranges.h"
#include "kernels/in_parallel.h"

namespace mhar::kernels {
namespace {

constexpr int64_t kLanes = 16;  // independent sums, for vectors

struct Float {
  static float at(const void* base, int64_t i) { return static_cast<const float*>(base)[i]; }
};
struct Bfloat16 {
  static float at(const void* base, int64_t i) { return bfloat16_to_float(static_cast<const uint16_t*>(base)[i]); }
};

template <typename Number>
float squares(const void* gradient, int64_t begin, int64_t end) {
  float sums[kLanes] = {};
  int64_t i = begin;
  for (; i + kLanes <= end; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const float x = Number::at(gradient, i + lane);
      sums[lane] += x * x;
    }
  }
  float total = 0.0f;
  for (; i < end; ++i) total += Number::at(gradient, i) * Number::at(gradient, i);
  for (const float sum : sums) total += sum;
  return total;
}

void sum_ranges(const ClipPiece& a, int64_t first, int64_t last) {
  const ClipRanges cut(a.count);
  for (int64_t range = first; range < last; ++range) {
    const int64_t begin = range * cut.length, end = begin + cut.length < a.count ? begin + cut.length : a.count;
    a.partials[range] =
        a.type == Element::f32 ? squares<Float>(a.gradient, begin, end) : squares<Bfloat16>(a.gradient, begin, end);
  }
}

}  // namespace

int64_t clip_ranges(int64_t count) { return ClipRanges(count).ranges; }

int clip_squares_cpu(const ClipPiece& a, void* queue) {
  const int64_t ranges = ClipRanges(a.count).ranges;
  in_parallel(ranges > 1 ? queue : nullptr, ranges, [&](int64_t first, int64_t last) { sum_ranges(a, first, last); });
  return 0;
}

int clip_cpu(const ClipArguments& a, void*) {
  float total = 0.0f;
  for (int64_t range = 0; range < a.ranges; ++range) total += a.partials[range];
  finish_clip(a, total);
  return 0;
}

}  // namespace mhar::kernels
