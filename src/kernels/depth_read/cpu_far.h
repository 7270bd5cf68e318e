#pragma once
// Far passes of the CPU, Eq. 37 and 39: for a token and head, all products first, then the softmax, then the sums.
#include "kernels/depth_read/cpu_rows.h"
#include "kernels/depth_read/cpu_scratch.h"

namespace mhar::kernels {
namespace {

template <typename T, int J>
[[gnu::always_inline]] inline void far_forward_head(const DepthSizes& z, const FarForward& f, int64_t p, int64_t h,
                                                    Statistic<T>* e) {
  using A = Statistic<T>;
  using Columns = Lanes<A, kColumns>;
  const int64_t D = z.width, K = z.channels(), PD = z.values();
  const T* sources = as<T>(f.sources) + p * D;
  const A* keys[J];
  for (int j = 0; j < J; ++j) keys[j] = as<A>(f.keys) + (j < f.sites ? j : 0) * D;
  Columns most = Columns{} - __builtin_inff(), total = {};
  for (int64_t i = 0; i < f.count; ++i) {
    A products[kColumns] = {};
    dots<J>(sources + i * PD, keys, h * K, K, products);
    const Columns a = load<kColumns>(products) * as<A>(f.rho)[i * z.tokens + p];
    most = a > most ? a : most;
    store<kColumns>(e + i * kColumns, a);
  }
  for (int64_t i = 0; i < f.count; ++i) {
    const Columns weight = exponential<kColumns>(load<kColumns>(e + i * kColumns) - most);
    total += weight;
    store<kColumns>(e + i * kColumns, weight);
  }
  for (int64_t j = 0; j < f.sites; ++j) {
    as<A>(f.lse)[(j * z.tokens + p) * z.heads + h] = most[j] + logarithm<A>(total[j]);
  }
  const Columns inverse = 1 / total;
  over_blocks<A, kUnroll<J>>(
      h * K, (h + 1) * K, [&](auto unroll, auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int U = decltype(unroll)::value, W = decltype(width)::value;
        Lanes<A, W> mixes[U][J];
        add_rows<J, U, W, kColumns>(
            mixes, true, e, f.count, d, [&](int64_t i) __attribute__((always_inline)) { return sources + i * PD; });
        for (int u = 0; u < U; ++u)
          for (int j = 0; j < J; ++j)
            if (j < f.sites)
              store<W>(as<T>(f.mixes) + j * PD + p * D + d + u * W, Lanes<A, W>(mixes[u][j] * inverse[j]));
      });
}

template <typename T, int J>
void far_forward_rows(const DepthSizes& z, const FarForward& f, int64_t begin, int64_t end) {
  using A = Statistic<T>;
  const int64_t D = z.width;
  A* e = static_cast<A*>(__builtin_alloca_with_align(f.count * kColumns * sizeof(A), 512));
  for (int64_t p = begin; p < end; ++p) {
    if (f.newest) {
      const T* source = as<T>(f.sources) + (f.count - 1) * z.values() + p * D;
      as<A>(f.rho)[(f.count - 1) * z.tokens + p] = inverse_rms(source, D, z.eps);
    }
    for (int64_t h = 0; h < z.heads; ++h) far_forward_head<T, J>(z, f, p, h, e);
    if (f.norm.weight) norm_row<T>(z, f.norm, p, GatedRow<T>(f.mixes, nullptr, nullptr, p * D));
  }
}

template <typename T, int J>
[[gnu::always_inline]] inline void far_backward_head(const DepthSizes& z, const BackwardChunk& chunk,
                                                     const FarBackward& f, int64_t p, int64_t h, Statistic<T>* pi,
                                                     Statistic<T>* key_weights) {
  using A = Statistic<T>;
  using Columns = Lanes<A, kColumns>;
  const int64_t P = z.tokens, H = z.heads, D = z.width, K = z.channels(), PD = z.values();
  const int64_t sites = chunk.sites - chunk.far, ph = p * H + h;
  const CpuScratch scratch(z, chunk);
  const T* sources[J];
  Columns rho = {}, through = {};
  for (int j = 0; j < J; ++j) {
    const int64_t column = j < f.count ? j : 0;
    sources[j] = as<T>(f.sources) + column * PD + p * D;
    rho[j] = as<A>(f.rho)[column * P + p];
  }
  const A* keys = as<A>(f.keys);
  const T* gradients = as<T>(f.mix_gradients) + p * D;
  for (int64_t r = 0; r < sites; ++r) {
    A products[kColumns] = {}, values[kColumns] = {};
    dots<J>(keys + r * D, sources, h * K, K, products);
    dots<J>(gradients + r * PD, sources, h * K, K, values);
    const Columns a = rho * load<kColumns>(products), above = a - as<A>(f.lse)[r * P * H + ph];
    const Columns weight = exponential<kColumns>(above > 0 ? Columns{} : above);
    const Columns da = weight * (load<kColumns>(values) - as<A>(f.deltas)[r * P * H + ph]);
    through += da * a;
    store<kColumns>(pi + r * kColumns, weight);
    store<kColumns>(key_weights + r * kColumns, Columns(da * rho));
  }
  for (int64_t j = 0; j < f.count; ++j) {
    as<A>(f.through_rho)[j * P * H + ph] = through[j];
    A* pairs = scratch.pairs<A>(f.column + j, h, p) + (chunk.far - chunk.first);
    for (int64_t r = 0; r < sites; ++r) pairs[r] = key_weights[r * kColumns + j];
  }
  over_blocks<A, kUnroll<J>>(
      h * K, (h + 1) * K, [&](auto unroll, auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int U = decltype(unroll)::value, W = decltype(width)::value;
        Lanes<A, W> pulled[U][J];
        add_rows<J, U, W, kColumns>(
            pulled, true, pi, sites, d, [&](int64_t r) __attribute__((always_inline)) { return gradients + r * PD; });
        add_rows<J, U, W, kColumns>(
            pulled, false, key_weights, sites,
            d, [&](int64_t r) __attribute__((always_inline)) { return keys + r * D; });
        for (int u = 0; u < U; ++u)
          for (int j = 0; j < J; ++j)
            if (j < f.count) store<W>(as<T>(f.partials) + j * PD + p * D + d + u * W, pulled[u][j]);
      });
}

template <typename T, int J>
void far_backward_rows(const DepthSizes& z, const BackwardChunk& chunk, const FarBackward& f, int64_t begin,
                       int64_t end) {
  using A = Statistic<T>;
  const int64_t numbers = (chunk.sites - chunk.far) * kColumns;
  A* pi = static_cast<A*>(__builtin_alloca_with_align(2 * numbers * sizeof(A), 512));
  for (int64_t p = begin; p < end; ++p)
    for (int64_t h = 0; h < z.heads; ++h) far_backward_head<T, J>(z, chunk, f, p, h, pi, pi + numbers);
}

}  // namespace
}  // namespace mhar::kernels
