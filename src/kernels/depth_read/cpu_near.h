#pragma once
// Near forward pass of the CPU, Eq. 38, and the norm behind it.
#include "kernels/depth_read/cpu_rows.h"

namespace mhar::kernels {
namespace {

/// sums[i] = x . y_i for any number of rows.
template <typename X, typename Y>
[[gnu::always_inline]] inline void all_dots(const X* x, const Y* const* y, int64_t rows, int64_t offset, int64_t K,
                                            Statistic<Y>* sums) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) dots<4>(x, y + i, offset, K, sums + i);
  for (; i < rows; ++i) dots<1>(x, y + i, offset, K, sums + i);
}

/// A token's parts: near sources, the mix of the far pass, the null source.
template <typename T>
struct Parts {
  static constexpr int kMost = 24;  ///< kMostNear + 2, rounded up to whole vectors
  const T* rows[kMost];
  int64_t count;
};

template <typename T>
[[gnu::always_inline]] inline void near_forward_head(const DepthSizes& z, const NearForward& n, int64_t p, int64_t h,
                                                     const Parts<T>& parts) {
  using A = Statistic<T>;
  using Columns = Lanes<A, kColumns>;
  constexpr A kNothing = -__builtin_inff();
  const int64_t K = z.channels();
  A weights[Parts<T>::kMost];
  for (A& weight : weights) weight = kNothing;
  if (n.count > 0) all_dots(as<A>(n.key), parts.rows, n.count, h * K, K, weights);
  int64_t i = 0;
  for (; i < n.count; ++i) weights[i] *= as<A>(n.rho[i])[p];
  A& lse = as<A>(n.lse)[p * z.heads + h];
  if (n.partial) weights[i++] = lse;
  if (n.null_logits) weights[i++] = as<A>(n.null_logits)[h];
  A most = weights[0];
  for (int64_t j = 1; j < i; ++j) most = weights[j] > most ? weights[j] : most;
  Columns totals = {};
  for (int64_t j = 0; j < i; j += kColumns) {
    const Columns weight = exponential<kColumns>(load<kColumns>(weights + j) - most);
    store<kColumns>(weights + j, weight);
    totals += weight;
  }
  const A total = sum<A, kColumns>(totals), inverse = 1 / total;
  lse = most + logarithm<A>(total);
  T* mix = as<T>(n.mix) + p * z.width;
  over_blocks<A, kUnroll<1>>(
      h * K, (h + 1) * K, [&](auto unroll, auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int U = decltype(unroll)::value, W = decltype(width)::value;
        Lanes<A, W> mixed[U][1];
        add_rows<1, U, W, 1>(
            mixed, true, weights, parts.count,
            d, [&](int64_t j) __attribute__((always_inline)) { return parts.rows[j]; });
        for (int u = 0; u < U; ++u) store<W>(mix + d + u * W, Lanes<A, W>(mixed[u][0] * inverse));
      });
}

template <typename T>
void near_forward_rows(const DepthSizes& z, const NearForward& n, int64_t begin, int64_t end) {
  using A = Statistic<T>;
  const int64_t D = z.width;
  for (int64_t p = begin; p < end; ++p) {
    Parts<T> parts;
    parts.count = 0;
    for (; parts.count < n.count; ++parts.count) parts.rows[parts.count] = as<T>(n.sources[parts.count]) + p * D;
    if (n.newest) as<A>(n.rho[n.count - 1])[p] = inverse_rms(parts.rows[n.count - 1], D, z.eps);
    if (n.partial) parts.rows[parts.count++] = as<T>(n.mix) + p * D;
    if (n.null_logits) parts.rows[parts.count++] = as<T>(n.null_value);
    for (int64_t h = 0; h < z.heads; ++h) near_forward_head<T>(z, n, p, h, parts);
    if (n.norm.weight) norm_row<T>(z, n.norm, p, GatedRow<T>(n.mix, n.stream, n.gate, p * D));
  }
}

}  // namespace
}  // namespace mhar::kernels
