#pragma once
// The loss of rows on a CPU, for one level of instructions.
#include "kernels/head_loss/passes.h"
#include "kernels/head_loss/row.h"
#include "kernels/pointwise/cpu_ranges.h"

namespace mhar::kernels {
namespace {

constexpr float kInfinity = __builtin_inff();

template <typename T>
float largest_of(const T* row, int64_t V) {
  Lanes<float, kLanes<float>> whole = Lanes<float, kLanes<float>>{} - kInfinity;
  float rest = -kInfinity;
  over<float>(
      0, V, [&](auto width, int64_t c) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        const Lanes<float, w> x = load<w>(row + c);
        if constexpr (w == kLanes<float>) {
          whole = x > whole ? x : whole;
        } else if constexpr (w == 1) {
          rest = x > rest ? x : rest;
        } else {
          for (int i = 0; i < w; ++i) rest = x[i] > rest ? x[i] : rest;
        }
      });
  for (int i = 0; i < kLanes<float>; ++i) rest = whole[i] > rest ? whole[i] : rest;
  return rest;
}

template <typename T>
void head_loss_row_of(const HeadLossSizes& z, const HeadLoss& a, int64_t p) {
  const int64_t V = z.classes, y = a.targets[p];
  T* row = as<T>(a.logits) + p * V;
  if (y < 0) {
    a.loss[p] = 0.0f;
    if (a.squares) a.squares[p] = 0.0f;
    if (a.gradient) memset(row, 0, V * sizeof(T));
    return;
  }
  if (y >= V) {
    a.loss[p] = __builtin_nanf("");
    return;
  }
  const float x = load<1>(row + y);
  store<1>(row + y, -kInfinity);  // out of the sum over the others
  float largest = largest_of(row, V);
  largest = x > largest ? x : largest;
  const float others = sum_of<float>(
      V, [&](auto width, int64_t c) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        return exponential<w>(load<w>(row + c) - largest);
      });
  const HeadLossRow result = head_loss_row(x, largest, others, static_cast<float>(a.z_loss));
  a.loss[p] = result.loss;
  if (a.squares) a.squares[p] = result.lse * result.lse;
  if (!a.gradient) return;
  const float weight = static_cast<float>(a.weight) * (a.scale ? *a.scale : 1.0f), share = weight * result.share;
  over<float>(
      0, V, [&](auto width, int64_t c) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        store<w>(row + c, Lanes<float, w>(exponential<w>(load<w>(row + c) - largest) * share));
      });
  store<1>(row + y, weight * result.target);
}

void head_loss_pass(const HeadLossSizes& z, const HeadLoss& a, void* queue) {
  with_element(z.type, [&](auto type) {
    in_parallel(queue, z.rows, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) head_loss_row_of<decltype(type)>(z, a, p);
    });
  });
}

}  // namespace
}  // namespace mhar::kernels
