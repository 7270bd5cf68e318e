#pragma once
// The gate of the MLP on a CPU, for one level of instructions.
#include "kernels/pointwise/cpu_ranges.h"
#include "kernels/swiglu/swiglu.h"

namespace mhar::kernels {
namespace {

/// exp is taken of numbers up to 0 alone, so that nothing overflows on the way.
template <int W>
[[gnu::always_inline]] inline Lanes<float, W> sigmoid(const Lanes<float, W>& x) {
  const Lanes<float, W> e = exponential<W>(x < 0.0f ? x : -x);
  return (x < 0.0f ? e : e * 0.0f + 1.0f) / (e + 1.0f);
}

template <typename T>
void swiglu_forward_rows(const SwigluSizes& z, const SwigluForward& f, int64_t begin, int64_t end) {
  const int64_t F = z.inner;
  for (int64_t p = begin; p < end; ++p) {
    const T *gate = as<T>(f.gate_up) + p * 2 * F, *up = gate + F;
    T* inner = as<T>(f.inner) + p * F;
    over<float>(
        0, F, [&](auto width, int64_t d) __attribute__((always_inline)) {
          constexpr int w = decltype(width)::value;
          const Lanes<float, w> a = load<w>(gate + d);
          const Lanes<float, w> silu = rounded_to<T, w>(a * sigmoid<w>(a));
          store<w>(inner + d, Lanes<float, w>(silu * load<w>(up + d)));
        });
  }
}

template <typename T>
void swiglu_backward_rows(const SwigluSizes& z, const SwigluBackward& b, int64_t begin, int64_t end) {
  const int64_t F = z.inner;
  for (int64_t p = begin; p < end; ++p) {
    const T *gate = as<T>(b.gate_up) + p * 2 * F, *up = gate + F, *du = as<T>(b.inner_gradient) + p * F;
    T *dgate = as<T>(b.gate_up_gradient) + p * 2 * F, *dup = dgate + F;
    T* inner = b.inner ? as<T>(b.inner) + p * F : nullptr;
    over<float>(
        0, F, [&](auto width, int64_t d) __attribute__((always_inline)) {
          constexpr int w = decltype(width)::value;
          const Lanes<float, w> a = load<w>(gate + d), gradient = load<w>(du + d), c = sigmoid<w>(a);
          const Lanes<float, w> other = load<w>(up + d), silu = rounded_to<T, w>(a * c);
          if (inner) store<w>(inner + d, Lanes<float, w>(silu * other));
          store<w>(dup + d, Lanes<float, w>(gradient * silu));
          store<w>(dgate + d, Lanes<float, w>(gradient * other * c * (a * (1.0f - c) + 1.0f)));
        });
  }
}

void swiglu_forward_pass(const SwigluSizes& z, const SwigluForward& f, void* queue) {
  with_element(z.type, [&](auto type) {
    in_parallel(queue, z.rows,
                [&](int64_t begin, int64_t end) { swiglu_forward_rows<decltype(type)>(z, f, begin, end); });
  });
}

void swiglu_backward_pass(const SwigluSizes& z, const SwigluBackward& b, void* queue) {
  with_element(z.type, [&](auto type) {
    in_parallel(queue, z.rows,
                [&](int64_t begin, int64_t end) { swiglu_backward_rows<decltype(type)>(z, b, begin, end); });
  });
}

}  // namespace
}  // namespace mhar::kernels
