#pragma once
// RMSNorm rows on a CPU, for one level of instructions: a row stays in the first cache from its first loop to its last.
#include "kernels/norm/norm.h"
#include "kernels/pointwise/cpu_ranges.h"

namespace mhar::kernels {
namespace {

template <typename T>
void norm_forward_rows(const NormSizes& z, const NormForward& f, int64_t begin, int64_t end) {
  const int64_t D = z.width;
  for (int64_t p = begin; p < end; ++p) {
    const T* x = as<T>(f.x) + p * D;
    if (f.output) {
      const T *stream = x, *output = as<T>(f.output) + p * D;
      T* sum = as<T>(f.sum) + p * D;
      over<float>(
          0, D, [&](auto width, int64_t d) __attribute__((always_inline)) {
            constexpr int w = decltype(width)::value;
            store<w>(sum + d, Lanes<float, w>(load<w>(stream + d) + load<w>(output + d)));
          });
      x = sum;
    }
    const float rho = inverse_rms(x, D, z.eps);
    f.rho[p] = rho;
    const T* weight = as<T>(f.weight);
    T* y = as<T>(f.normed) + p * D;
    over<float>(
        0, D, [&](auto width, int64_t d) __attribute__((always_inline)) {
          constexpr int w = decltype(width)::value;
          const Lanes<float, w> normalised = rounded_to<T, w>(rho * load<w>(x + d));
          store<w>(y + d, Lanes<float, w>(load<w>(weight + d) * normalised));
        });
  }
}

/// Eq. 10; adds the rows' dy * x / rms to `weight_gradient` [D].
template <typename T>
void norm_backward_rows(const NormSizes& z, const NormBackward& b, float* weight_gradient, int64_t begin, int64_t end) {
  const int64_t D = z.width;
  const T* weight = as<T>(b.weight);
  for (int64_t p = begin; p < end; ++p) {
    const T *dy = as<T>(b.normed_gradient) + p * D, *x = as<T>(b.x) + p * D;
    const T* other = b.sum_gradient ? as<T>(b.sum_gradient) + p * D : nullptr;
    T* dx = as<T>(b.x_gradient) + p * D;
    const float rho = b.rho[p];
    const float along = sum_of<float>(
                            D,
                            [&](auto width, int64_t d) __attribute__((always_inline)) {
                              constexpr int w = decltype(width)::value;
                              return load<w>(dy + d) * load<w>(weight + d) * (load<w>(x + d) * rho);
                            }) /
                        static_cast<float>(D);
    over<float>(
        0, D, [&](auto width, int64_t d) __attribute__((always_inline)) {
          constexpr int w = decltype(width)::value;
          const Lanes<float, w> gradient = load<w>(dy + d), normalised = load<w>(x + d) * rho;
          Lanes<float, w> total = rho * (gradient * load<w>(weight + d) - normalised * along);
          if (other) total += load<w>(other + d);
          store<w>(weight_gradient + d, Lanes<float, w>(load<w>(weight_gradient + d) + gradient * normalised));
          store<w>(dx + d, total);
        });
  }
}

void norm_forward_pass(const NormSizes& z, const NormForward& f, void* queue) {
  with_element(z.type, [&](auto type) {
    in_parallel(queue, z.rows,
                [&](int64_t begin, int64_t end) { norm_forward_rows<decltype(type)>(z, f, begin, end); });
  });
}

void norm_backward_pass(const NormSizes& z, const NormBackward& b, void* queue) {
  with_element(z.type, [&](auto type) {
    using T = decltype(type);
    sum_over_rows(
        queue, z.rows, z.width, b.scratch,
        [&](float* partial, int64_t begin, int64_t end) { norm_backward_rows<T>(z, b, partial, begin, end); },
        [&](auto width, int64_t c, const auto& total)
            __attribute__((always_inline)) { store<decltype(width)::value>(as<T>(b.weight_gradient) + c, total); });
  });
}

}  // namespace
}  // namespace mhar::kernels
