#pragma once
// Head norms and rotary positions on a CPU, for one level of instructions.
#include "kernels/pointwise/cpu_ranges.h"
#include "kernels/qk_rope/qk_rope.h"

namespace mhar::kernels {
namespace {

/// Where head h of row p lies: queries first, then keys.
template <typename T>
[[gnu::always_inline]] inline T* head_at(const QkRopeSizes& z, const QkHeads& all, int64_t p, int64_t h) {
  return h < z.heads ? as<T>(all.queries) + p * all.query_stride + h * z.head_dim
                     : as<T>(all.keys) + p * all.key_stride + (h - z.heads) * z.head_dim;
}

template <typename T>
void qk_rope_forward_rows(const QkRopeSizes& z, const QkRopeForward& f, int64_t begin, int64_t end) {
  const int64_t k = z.head_dim, half = k / 2, all = z.heads + z.kv_heads;
  for (int64_t p = begin; p < end; ++p) {
    const float *cosine = f.cosine + p % z.positions * half, *sine = f.sine + p % z.positions * half;
    for (int64_t h = 0; h < all; ++h) {
      const T* x = head_at<T>(z, f.input, p, h);
      T* y = head_at<T>(z, f.result, p, h);
      const T* weight = as<T>(h < z.heads ? f.query_weight : f.key_weight);
      float rho = 1.0f;
      if (weight) f.rho[p * all + h] = rho = inverse_rms(x, k, z.eps);
      over<float>(
          0, half, [&](auto width, int64_t j) __attribute__((always_inline)) {
            constexpr int w = decltype(width)::value;
            using V = Lanes<float, w>;
            V a = load<w>(x + j), b = load<w>(x + half + j);
            if (weight) {
              a = rounded_to<T, w>(load<w>(weight + j) * rounded_to<T, w>(a * rho));
              b = rounded_to<T, w>(load<w>(weight + half + j) * rounded_to<T, w>(b * rho));
            }
            const V c = load<w>(cosine + j), s = load<w>(sine + j);
            store<w>(y + j, V(a * c - b * s));
            store<w>(y + half + j, V(b * c + a * s));
          });
    }
  }
}

/// Eq. 14 backwards, then Eq. 10; adds the rows' shares to the sums [k] of the query and of the key weight.
template <typename T>
void qk_rope_backward_rows(const QkRopeSizes& z, const QkRopeBackward& g, float* weight_gradients, int64_t begin,
                           int64_t end) {
  const int64_t k = z.head_dim, half = k / 2, all = z.heads + z.kv_heads;
  float turned[256];
  for (int64_t p = begin; p < end; ++p) {
    const float *cosine = g.cosine + p % z.positions * half, *sine = g.sine + p % z.positions * half;
    for (int64_t h = 0; h < all; ++h) {
      const T* dy = head_at<T>(z, g.gradient, p, h);
      T* dx = head_at<T>(z, g.result, p, h);
      const T* weight = as<T>(h < z.heads ? g.query_weight : g.key_weight);
      over<float>(
          0, half, [&](auto width, int64_t j) __attribute__((always_inline)) {
            constexpr int w = decltype(width)::value;
            using V = Lanes<float, w>;
            const V a = load<w>(dy + j), b = load<w>(dy + half + j), c = load<w>(cosine + j), s = load<w>(sine + j);
            const V first = a * c + b * s, second = b * c - a * s;
            store<w>(turned + j, first);
            store<w>(turned + half + j, second);
            if (!weight) {
              store<w>(dx + j, first);
              store<w>(dx + half + j, second);
            }
          });
      if (!weight) continue;
      const T* x = head_at<T>(z, g.input, p, h);
      float* sums = weight_gradients + (h < z.heads ? 0 : k);
      const float rho = g.rho[p * all + h];
      const float along = sum_of<float>(
                              k,
                              [&](auto width, int64_t d) __attribute__((always_inline)) {
                                constexpr int w = decltype(width)::value;
                                return load<w>(turned + d) * load<w>(weight + d) * (load<w>(x + d) * rho);
                              }) /
                          static_cast<float>(k);
      over<float>(
          0, k, [&](auto width, int64_t d) __attribute__((always_inline)) {
            constexpr int w = decltype(width)::value;
            using V = Lanes<float, w>;
            const V gradient = load<w>(turned + d), normalised = load<w>(x + d) * rho;
            store<w>(sums + d, V(load<w>(sums + d) + gradient * normalised));
            store<w>(dx + d, V(rho * (gradient * load<w>(weight + d) - normalised * along)));
          });
    }
  }
}

void qk_rope_forward_pass(const QkRopeSizes& z, const QkRopeForward& f, void* queue) {
  with_element(z.type, [&](auto type) {
    in_parallel(queue, z.rows,
                [&](int64_t begin, int64_t end) { qk_rope_forward_rows<decltype(type)>(z, f, begin, end); });
  });
}

void qk_rope_backward_pass(const QkRopeSizes& z, const QkRopeBackward& g, void* queue) {
  with_element(z.type, [&](auto type) {
    using T = decltype(type);
    if (!g.query_weight) {
      return in_parallel(queue, z.rows,
                         [&](int64_t begin, int64_t end) { qk_rope_backward_rows<T>(z, g, nullptr, begin, end); });
    }
    const int64_t k = z.head_dim;
    sum_over_rows(
        queue, z.rows, 2 * k, g.scratch,
        [&](float* partial, int64_t begin, int64_t end) { qk_rope_backward_rows<T>(z, g, partial, begin, end); },
        [&](auto width, int64_t c, const auto& total) __attribute__((always_inline)) {
          constexpr int w = decltype(width)::value;
          for (int i = 0; i < w; ++i) {  // a vector may lie in both halves
            float one;
            memcpy(&one, reinterpret_cast<const char*>(&total) + i * sizeof one, sizeof one);
            T* place = c + i < k ? as<T>(g.query_weight_gradient) + c + i : as<T>(g.key_weight_gradient) + c + i - k;
            store<1>(place, one);
          }
        });
  });
}

}  // namespace
}  // namespace mhar::kernels
