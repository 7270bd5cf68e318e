#pragma once
// How the pointwise passes run on threads and sum over rows. For the units of one level of instructions: all in an
// unnamed namespace, like the vectors it uses.
#include "kernels/depth_read/cpu_rows.h"
#include "kernels/in_parallel.h"
#include "kernels/pointwise/passes.h"

namespace mhar::kernels {
namespace {

template <typename Run>
[[gnu::always_inline]] inline void with_element(Element type, const Run& run) {
  if (type == Element::f32) return run(float());
  return run(Bfloat16());
}

/// Calls body(partial, begin, end) for ranges of the rows, with `columns` zeroed sums for each, and then
/// finish(c, sum, Width<W>) for the sums over all ranges.
template <typename Body, typename Finish>
void sum_over_rows(void* queue, int64_t rows, int64_t columns, void* scratch, const Body& body, const Finish& finish) {
  const int64_t length = rows > kRowRanges ? (rows + kRowRanges - 1) / kRowRanges : 1;
  const int64_t ranges = (rows + length - 1) / length;
  in_parallel(queue, ranges, [&](int64_t first, int64_t last) {
    for (int64_t range = first; range < last; ++range) {
      float* partial = as<float>(scratch) + range * columns;
      memset(partial, 0, columns * sizeof(float));
      body(partial, range * length, (range + 1) * length < rows ? (range + 1) * length : rows);
    }
  });
  over<float>(
      0, columns, [&](auto width, int64_t c) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        Lanes<float, w> total{};
        for (int64_t range = 0; range < ranges; ++range) total += load<w>(as<float>(scratch) + range * columns + c);
        finish(width, c, total);
      });
}

}  // namespace
}  // namespace mhar::kernels
