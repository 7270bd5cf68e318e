#pragma once
// Near backward pass of the CPU, Eq. 39, 40 and 42, and the sums over tokens, Eq. 41.
#include "kernels/depth_read/cpu_near.h"
#include "kernels/depth_read/cpu_scratch.h"

namespace mhar::kernels {
namespace {

/// Token p of a site: Eq. 10 and 42, then delta of Eq. 5. `norm_sums` [D] gets dy * o / rms; `row` has room for D.
template <typename T>
[[gnu::always_inline]] inline void near_backward_site(const DepthSizes& z, const NearBackward& n, int64_t p,
                                                      Statistic<T>* norm_sums, T* row) {
  using A = Statistic<T>;
  const int64_t D = z.width, K = z.channels();
  const GatedRow<T> x(n.mix, n.stream, n.gate, p * D);
  const T *dy = as<T>(n.normed_gradient) + p * D, *weight = as<T>(n.norm_weight);
  T* mix = as<T>(n.mix) + p * D;
  const A rho = weight ? as<A>(n.norm_rho)[p] : 0;
  A mean = 0;
  if (weight) {
    mean = sum_of<A>(
        D, [&](auto width, int64_t d) __attribute__((always_inline)) {
          constexpr int W = decltype(width)::value;
          return Lanes<A, W>(load<W>(dy + d) * load<W>(weight + d) * (rho * x(width, d)));
        });
    mean /= static_cast<A>(D);
  }
  const auto gradient = [&](auto width, int64_t d) __attribute__((always_inline)) {
    constexpr int W = decltype(width)::value;
    if (!weight) return Lanes<A, W>(load<W>(dy + d));
    return Lanes<A, W>(rho * (load<W>(dy + d) * load<W>(weight + d) - rho * x(width, d) * mean));
  };
  if (n.stream) {
    as<A>(n.gate_products)[p] = sum_of<A>(
        D, [&](auto width, int64_t d) __attribute__((always_inline)) {
          constexpr int W = decltype(width)::value;
          return Lanes<A, W>(gradient(width, d) * load<W>(mix + d));
        });
  }
  over<A>(
      0, D, [&](auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int W = decltype(width)::value;
        Lanes<A, W> dx = gradient(width, d);
        if (weight)
          store<W>(norm_sums + d, Lanes<A, W>(load<W>(norm_sums + d) + load<W>(dy + d) * (rho * x(width, d))));
        if (n.stream) {
          store<W>(as<T>(n.stream_gradient) + p * D + d, dx);
          dx = x.gate * dx;
        }
        store<W>(row + d, dx);
      });
  const T* o = mix;
  for (int64_t h = 0; h < z.heads; ++h) dots<1>(row, &o, h * K, K, as<A>(n.delta) + p * z.heads + h);
  memcpy(mix, row, D * sizeof(T));
}

/// What a source gets from the sites of its chunk at one token and head: weights of their dO and of their keys.
template <typename A>
struct Pulls {
  A pi[kMostNear], key_weights[kMostNear];
  const A* keys[kMostNear];  ///< those of weight other than 0
  int64_t keyed;
};

/// Returns the head's sum of da * a.
template <typename T>
[[gnu::always_inline]] inline Statistic<T> weigh_pulls(const DepthSizes& z, const BackwardChunk& chunk,
                                                       const NearBackward& n, int64_t p, int64_t h, const T* source,
                                                       const T* const* gradients, Pulls<Statistic<T>>& pulls) {
  using A = Statistic<T>;
  const int64_t K = z.channels(), PH = z.tokens * z.heads, ph = p * z.heads + h, column = n.index - chunk.first;
  const A rho = as<A>(n.rho)[p];
  const A* keys[kMostNear];
  for (int64_t r = 0; r < n.sites; ++r) keys[r] = as<A>(n.keys) + r * z.width;
  A products[kMostNear], values[kMostNear];
  all_dots(source, keys, n.sites, h * K, K, products);
  all_dots(source, gradients, n.sites, h * K, K, values);
  A* pairs = CpuScratch(z, chunk).template pairs<A>(column, h, p);
  for (int64_t r = 0; r < chunk.far - chunk.first; ++r) pairs[r] = 0;
  pulls.keyed = 0;
  A through = n.through_rho ? as<A>(n.through_rho)[ph] : 0;
  for (int64_t r = 0; r < n.sites; ++r) {
    const A a = rho * products[r], above = a - as<A>(n.lse)[r * PH + ph];
    const A pi = exponential<1>(above > 0 ? A(0) : above);
    const A da = pi * (values[r] - as<A>(n.deltas)[r * PH + ph]);
    through += da * a;
    pulls.pi[r] = pi;
    pairs[column + r] = da * rho;
    if (da == 0) continue;  // adding nothing would still turn a negative zero positive
    pulls.keys[pulls.keyed] = keys[r];
    pulls.key_weights[pulls.keyed++] = da * rho;
  }
  return through;
}

template <typename T>
[[gnu::always_inline]] inline void near_backward_source(const DepthSizes& z, const BackwardChunk& chunk,
                                                        const NearBackward& n, int64_t p, Pulls<Statistic<T>>* pulls) {
  using A = Statistic<T>;
  const int64_t D = z.width, K = z.channels();
  const T* source = as<T>(n.source) + p * D;
  const T* gradients[kMostNear];
  for (int64_t r = 0; r < n.sites; ++r) gradients[r] = as<T>(n.mix_gradients[r]) + p * D;
  A through = 0;
  for (int64_t h = 0; h < z.heads; ++h) through += weigh_pulls<T>(z, chunk, n, p, h, source, gradients, pulls[h]);
  const A rho = as<A>(n.rho)[p], inward = rho * rho / static_cast<A>(D) * through;
  const T* partial = n.partial ? as<T>(n.partial) + p * D : nullptr;
  T* ds = as<T>(n.source_gradient) + p * D;
  for (int64_t h = 0; h < z.heads; ++h) {
    const Pulls<A>& pull = pulls[h];
    const auto body = [&](auto unroll, auto width, int64_t d) __attribute__((always_inline)) {
      constexpr int U = decltype(unroll)::value, W = decltype(width)::value;
      Lanes<A, W> total[U][1] = {};
      if (n.sites > 0) {
        add_rows<1, U, W, 1>(
            total, true, pull.pi, n.sites, d, [&](int64_t r) __attribute__((always_inline)) { return gradients[r]; });
        add_rows<1, U, W, 1>(
            total, false, pull.key_weights, pull.keyed,
            d, [&](int64_t r) __attribute__((always_inline)) { return pull.keys[r]; });
      }
      for (int u = 0; u < U; ++u) {
        const int64_t at = d + u * W;
        if (partial) total[u][0] += load<W>(partial + at);
        if (inward != 0) total[u][0] -= inward * load<W>(source + at);
        store<W>(ds + at, total[u][0]);
      }
    };
    over_blocks<A, kUnroll<1>>(h * K, (h + 1) * K, body);
  }
}

/// Ranges [begin, end) of tokens.
template <typename T>
void near_backward_ranges(const DepthSizes& z, const BackwardChunk& chunk, const NearBackward& n, int64_t begin,
                          int64_t end) {
  using A = Statistic<T>;
  const CpuScratch scratch(z, chunk);
  T* row = static_cast<T*>(__builtin_alloca_with_align(z.width * sizeof(T), 512));
  auto* pulls = static_cast<Pulls<A>*>(__builtin_alloca_with_align(z.heads * sizeof(Pulls<A>), 512));
  for (int64_t range = begin; range < end; ++range) {
    A* norm_sums = n.norm_weight ? scratch.norm_sums<A>(n.site - chunk.first, range) : nullptr;
    if (norm_sums) memset(norm_sums, 0, z.width * sizeof(A));
    const int64_t first = range * scratch.range_length(), last = first + scratch.range_length();
    for (int64_t p = first; p < (last < z.tokens ? last : z.tokens); ++p) {
      if (n.normed_gradient) near_backward_site<T>(z, n, p, norm_sums, row);
      if (n.source) near_backward_source<T>(z, chunk, n, p, pulls);
    }
  }
}

/// Tokens whose rows of one block of channels stay in the first cache while all sites use them; also how many numbers
/// are added up before they join the long sum.
constexpr int64_t kTokenTile = 128;

/// Adds source `column`'s tokens [begin, end) to dw of J sites from `row` of the chunk on, channels d .. d + U * W - 1.
template <typename T, int J, int U, int W>
[[gnu::always_inline]] inline void add_key_gradients(const DepthSizes& z, const BackwardChunk& chunk,
                                                     const ChunkGradients& c, int64_t column, int64_t row,
                                                     int64_t begin, int64_t end, int64_t h, int64_t d) {
  using A = Statistic<T>;
  const CpuScratch scratch(z, chunk);
  const int64_t D = z.width;
  const A* pairs = scratch.pairs<A>(column, h, 0) + row;
  const T* source = as<T>(c.sources) + column * z.values() + d;
  Lanes<A, W> total[U][J] = {};
  for (int64_t p = begin; p < end; ++p) {
    Lanes<A, W> numbers[U];
    for (int u = 0; u < U; ++u) numbers[u] = load<W>(source + p * D + u * W);
    for (int j = 0; j < J; ++j)
      for (int u = 0; u < U; ++u) total[u][j] += pairs[p * scratch.rows + j] * numbers[u];
  }
  for (int j = 0; j < J; ++j) {
    if (chunk.first + row + j >= chunk.sites) continue;
    A* dw = as<A>(c.key_gradients) + (chunk.first + row + j) * D + d;
    for (int u = 0; u < U; ++u) store<W>(dw + u * W, Lanes<A, W>(load<W>(dw + u * W) + total[u][j]));
  }
}

template <typename T>
void key_gradient_channels(const DepthSizes& z, const BackwardChunk& chunk, const ChunkGradients& c, int64_t h,
                           int64_t begin, int64_t end) {
  using A = Statistic<T>;
  const int64_t sites = chunk.sites - chunk.first;
  for (int64_t row = 0; row < chunk.count && row < sites; ++row)
    memset(as<A>(c.key_gradients) + (chunk.first + row) * z.width + begin, 0, (end - begin) * sizeof(A));
  for (int64_t first = 0; first < z.tokens; first += kTokenTile) {
    const int64_t last = first + kTokenTile < z.tokens ? first + kTokenTile : z.tokens;
    for (int64_t column = 0; column < chunk.count; ++column) {
      for (int64_t row = column; row < sites; row += kColumns) {
        with_columns(
            sites - row, [&](auto columns) __attribute__((always_inline)) {
              over_blocks<A, 2>(
                  begin, end, [&](auto unroll, auto width, int64_t d) __attribute__((always_inline)) {
                    add_key_gradients<T, decltype(columns)::value, decltype(unroll)::value, decltype(width)::value>(
                        z, chunk, c, column, row, first, last, h, d);
                  });
            });
      }
    }
  }
}

/// The norm's gradient of site `row` of the chunk: the ranges in order.
template <typename A>
void sum_norm_gradients(const DepthSizes& z, const BackwardChunk& chunk, const ChunkGradients& c, int64_t row) {
  const CpuScratch scratch(z, chunk);
  A* to = as<A>(c.norm_gradients) + (chunk.first + row) * z.width;
  memset(to, 0, z.width * sizeof(A));
  for (int64_t range = 0; range < scratch.ranges(); ++range) {
    const A* sums = scratch.norm_sums<A>(row, range);
    for (int64_t d = 0; d < z.width; ++d) to[d] += sums[d];
  }
}

}  // namespace
}  // namespace mhar::kernels
