#pragma once
// What the passes do with the rows of one token: products with several other rows at once, weighted sums of rows, and
// the RMSNorm. Rows of one token stay in the first two caches while all queries use them.
#include "kernels/depth_read/cpu_vector.h"
#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels {
namespace {

constexpr int kColumns = kMostFar;  ///< numbers that a row has for each of up to 8 sites (or sources) lie so far apart

template <typename T>
[[gnu::always_inline]] inline const T* as(const void* memory) {
  return static_cast<const T*>(memory);
}
template <typename T>
[[gnu::always_inline]] inline T* as(void* memory) {
  return static_cast<T*>(memory);
}

/// sums[j] = x . y_j over K numbers. The order of the sum depends on K alone, so that equal rows give equal sums
/// wherever they are taken: with one source, dO . s and delta cancel to the last bit.
template <int J, typename X, typename Y>
[[gnu::always_inline]] inline void dots(const X* x, const Y* const* y, int64_t offset, int64_t K, Statistic<Y>* sums) {
  using A = Statistic<Y>;
  constexpr int W = kLanes<A>;
  Lanes<A, W> whole[J] = {};
  A rest[J] = {};
  over<A>(
      offset, offset + K, [&](auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        const auto row = load<w>(x + d);
        for (int j = 0; j < J; ++j) {
          if constexpr (w == W) {
            whole[j] += row * load<w>(y[j] + d);
          } else {
            rest[j] += sum<A, w>(row * load<w>(y[j] + d));
          }
        }
      });
  for (int j = 0; j < J; ++j) sums[j] = sum<A, W>(whole[j]) + rest[j];
}

/// total[u][j] gets sum over i of weights[i * Stride + j] * row(i)[d + u * W ..]; `fresh` starts with the first row
/// itself and not with 0, so that a single row of weight 1 keeps even its negative zeros.
template <int J, int U, int W, int Stride, typename A, typename Row>
[[gnu::always_inline]] inline void add_rows(Lanes<A, W> (&total)[U][J], bool fresh, const A* weights, int64_t rows,
                                            int64_t d, const Row& row) {
  if (fresh) {
    for (int u = 0; u < U; ++u)
      for (int j = 0; j < J; ++j) total[u][j] = weights[j] * load<W>(row(0) + d + u * W);
  }
  for (int64_t i = fresh; i < rows; ++i) {
    Lanes<A, W> numbers[U];
    for (int u = 0; u < U; ++u) numbers[u] = load<W>(row(i) + d + u * W);
    for (int j = 0; j < J; ++j)
      for (int u = 0; u < U; ++u) total[u][j] += weights[i * Stride + j] * numbers[u];
  }
}

/// body(Width<U>, Width<W>, d): several vectors at a time where few sums would wait for one another.
template <typename A, int U, typename Body>
[[gnu::always_inline]] inline void over_blocks(int64_t begin, int64_t end, const Body& body) {
  constexpr int W = kLanes<A>;
  for (; begin + U * W <= end; begin += U * W) body(Width<U>(), Width<W>(), begin);
  over<A>(
      begin, end, [&](auto width, int64_t d) __attribute__((always_inline)) { body(Width<1>(), width, d); });
}
/// Enough independent sums to keep two multipliers of latency 4 busy, in half of the registers.
template <int J>
constexpr int kUnroll = kVectorBytes == 64 ? (J >= 8   ? 2
                                              : J >= 3 ? 3
                                                       : 4)
                                           : (J >= 4 ? 1 : 2);

/// Sum of the D numbers number(Width<W>, d).
template <typename A, typename Number>
[[gnu::always_inline]] inline A sum_of(int64_t D, const Number& number) {
  constexpr int W = kLanes<A>;
  Lanes<A, W> whole[4] = {};
  A rest = 0;
  over_blocks<A, 4>(
      0, D, [&](auto unroll, auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        for (int u = 0; u < decltype(unroll)::value; ++u) {
          if constexpr (w == W) {
            whole[u] += number(width, d + u * w);
          } else {
            rest += sum<A, w>(number(width, d + u * w));
          }
        }
      });
  return sum<A, W>((whole[0] + whole[1]) + (whole[2] + whole[3])) + rest;
}

/// 1 / rms of the D numbers number(Width<W>, d), Eq. 1 and 9.
template <typename A, typename Number>
[[gnu::always_inline]] inline A inverse_rms(int64_t D, double eps, const Number& number) {
  const A squares = sum_of<A>(
      D, [&](auto width, int64_t d) __attribute__((always_inline)) {
        const auto x = number(width, d);
        return x * x;
      });
  const A mean = squares / static_cast<A>(D) + static_cast<A>(eps);
  return 1 / static_cast<A>(__builtin_sqrt(mean));
}

template <typename T>
[[gnu::always_inline]] inline Statistic<T> inverse_rms(const T* row, int64_t D, double eps) {
  return inverse_rms<Statistic<T>>(
      D,
      eps, [&](auto width, int64_t d) __attribute__((always_inline)) { return load<decltype(width)::value>(row + d); });
}

/// Eq. 9 for token p; number() gives the row to be normed, as numbers of the storage type.
template <typename T, typename Number>
[[gnu::always_inline]] inline void norm_row(const DepthSizes& z, const DepthNorm& norm, int64_t p,
                                            const Number& number) {
  using A = Statistic<T>;
  const int64_t D = z.width;
  const A rho = inverse_rms<A>(D, z.eps, number);
  as<A>(norm.rho)[p] = rho;
  const T* weight = as<T>(norm.weight);
  T* y = as<T>(norm.output) + p * D;
  over<A>(
      0, D, [&](auto width, int64_t d) __attribute__((always_inline)) {
        constexpr int w = decltype(width)::value;
        const Lanes<A, w> normalised = rounded_to<T, w>(rho * number(width, d));
        store<w>(y + d, Lanes<A, w>(load<w>(weight + d) * normalised));
      });
}

template <typename A>
[[gnu::always_inline]] inline A logarithm(A value) {
  return sizeof(A) == 8 ? __builtin_log(value) : __builtin_logf(static_cast<float>(value));
}

/// The stream with the gated mix, Eq. 42: numbers of the storage type.
template <typename T>
struct GatedRow {
  const T* mix;
  const T* stream;  ///< null: the mix alone
  Statistic<T> gate;

  GatedRow(const void* all_mixes, const void* all_streams, const void* gate_memory, int64_t offset)
      : mix(as<T>(all_mixes) + offset),
        stream(all_streams ? as<T>(all_streams) + offset : nullptr),
        gate(all_streams ? *as<Statistic<T>>(gate_memory) : 0) {}

  template <int W>
  [[gnu::always_inline]] Lanes<Statistic<T>, W> operator()(Width<W>, int64_t d) const {
    if (!stream) return load<W>(mix + d);
    if (gate == 0) return load<W>(stream + d);
    return rounded_to<T, W>(load<W>(stream + d) + gate * load<W>(mix + d));
  }
};

/// Calls run(Width<J>) with J >= columns: an instance for every second number is enough, what is too much is not
/// stored.
template <typename Run>
void with_columns(int64_t columns, const Run& run) {
  if (columns <= 2) return run(Width<2>());
  if (columns <= 4) return run(Width<4>());
  return columns <= 6 ? run(Width<6>()) : run(Width<8>());
}

}  // namespace
}  // namespace mhar::kernels
