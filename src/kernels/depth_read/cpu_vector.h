#pragma once
// Vectors of numbers in the widest registers that this translation unit is compiled for. cpu_avx512.cpp, cpu_avx2.cpp
// and cpu_any.cpp include these headers with different compile options; everything is in an unnamed namespace and no
// inline function of the standard library is called, so that the linker never takes one unit's code for another's.
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/bfloat16.h"

namespace mhar::kernels {
namespace {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

/// Storage types that are no arithmetic types.
struct Bfloat16 {
  uint16_t bits;
};
struct Float16 {
  uint16_t bits;
};

/// The type that numbers of a storage type are computed in.
template <typename T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename A, int W>
struct LanesOf {
  typedef A type __attribute__((vector_size(sizeof(A) * W)));
};
template <typename A>
struct LanesOf<A, 1> {
  using type = A;
};
template <typename A, int W>
using Lanes = typename LanesOf<A, W>::type;

template <typename A>
constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(A));

template <int W>
using Width = std::integral_constant<int, W>;

template <typename To, typename From>
[[gnu::always_inline]] inline To as_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

template <typename To, int W, typename From>
[[gnu::always_inline]] inline Lanes<To, W> converted(const From& from) {
  if constexpr (W == 1) {
    return static_cast<To>(from);
  } else {
    return __builtin_convertvector(from, Lanes<To, W>);
  }
}

template <int W>
[[gnu::always_inline]] inline Lanes<float, W> from_half(const Lanes<uint32_t, W>& half) {
  // The exponent is rebiased by a product, which makes subnormal halves normal on the way.
  const Lanes<uint32_t, W> size = (half & 0x7FFFu) << 13;
  const Lanes<uint32_t, W> finite = as_bits<Lanes<uint32_t, W>>(as_bits<Lanes<float, W>>(size) * 0x1p112f);
  const Lanes<uint32_t, W> special = size | 0x7F800000u;
  return as_bits<Lanes<float, W>>((size >= 0x7C00u << 13 ? special : finite) | (half & 0x8000u) << 16);
}

template <int W>
[[gnu::always_inline]] inline Lanes<uint32_t, W> to_half(const Lanes<float, W>& value) {
  using U = Lanes<uint32_t, W>;
  const U bits = as_bits<U>(value), size = bits & 0x7FFFFFFFu;
  // Subnormal halves: the sum with 1/2 leaves as many bits as they have, rounded to nearest even.
  const U low = as_bits<U>(as_bits<Lanes<float, W>>(size) + 0.5f) - 0x3F000000u;
  const U normal = (size - (112u << 23) + 0xFFFu + (size >> 13 & 1u)) >> 13;
  U half = size < 113u << 23 ? low : normal;
  half = size >= 0x477FF000u ? half * 0 + 0x7C00u : half;  // 65520 and above
  half = size > 0x7F800000u ? half * 0 + 0x7E00u : half;
  return half | (bits >> 16 & 0x8000u);
}

template <int W>
[[gnu::always_inline]] inline Lanes<uint32_t, W> to_bfloat16(const Lanes<float, W>& value) {
  using U = Lanes<uint32_t, W>;
  const U bits = as_bits<U>(value), nearest = (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16;
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? bits >> 16 | 0x40u : nearest;
}

/// W numbers from memory of any alignment.
template <int W, typename T>
[[gnu::always_inline]] inline Lanes<Statistic<T>, W> load(const T* from) {
  if constexpr (std::is_arithmetic_v<T>) {
    Lanes<T, W> all;
    memcpy(&all, from, sizeof all);
    return all;
  } else {
    Lanes<uint16_t, W> narrow;
    memcpy(&narrow, from, sizeof narrow);
    const Lanes<uint32_t, W> wide = converted<uint32_t, W>(narrow);
    if constexpr (std::is_same_v<T, Bfloat16>) {
      return as_bits<Lanes<float, W>>(wide << 16);
    } else {
      return from_half<W>(wide);
    }
  }
}

/// Rounded to the storage type.
template <int W, typename T>
[[gnu::always_inline]] inline void store(T* to, const Lanes<Statistic<T>, W>& all) {
  if constexpr (std::is_arithmetic_v<T>) {
    memcpy(to, &all, sizeof all);
  } else {
    Lanes<uint32_t, W> wide;
    if constexpr (std::is_same_v<T, Bfloat16>) {
      wide = to_bfloat16<W>(all);
    } else {
      wide = to_half<W>(all);
    }
    const Lanes<uint16_t, W> narrow = converted<uint16_t, W>(wide);
    memcpy(to, &narrow, sizeof narrow);
  }
}

/// What storing leaves.
template <typename T, int W>
[[gnu::always_inline]] inline Lanes<Statistic<T>, W> rounded_to(const Lanes<Statistic<T>, W>& all) {
  if constexpr (std::is_arithmetic_v<T>) {
    return all;
  } else if constexpr (std::is_same_v<T, Bfloat16>) {
    return as_bits<Lanes<float, W>>(to_bfloat16<W>(all) << 16);
  } else {
    return from_half<W>(to_half<W>(all));
  }
}

/// Sum of all lanes, always by the same tree.
template <typename A, int W>
[[gnu::always_inline]] inline A sum(const Lanes<A, W>& all) {
  if constexpr (W == 1) {
    return all;
  } else {
    Lanes<A, W / 2> halves[2];
    memcpy(halves, &all, sizeof halves);
    return sum<A, W / 2>(halves[0] + halves[1]);
  }
}

/// exp of numbers up to 0; 0 below -87.3, where fp32 has subnormal results. Error below 2 ulp; exp(0) is exactly 1.
template <int W>
[[gnu::always_inline]] inline Lanes<float, W> exponential(const Lanes<float, W>& x) {
  using V = Lanes<float, W>;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: the sum has no bits behind the point
  const V shifted = x * 1.44269504f + kToInteger;
  const V n = shifted - kToInteger;
  const V r = x - n * 0.693359375f + n * 2.12194440e-4f;
  V series = 1.9875691500e-4f * r + 1.3981999507e-3f;
  series = series * r + 8.3334519073e-3f;
  series = series * r + 4.1665795894e-2f;
  series = series * r + 1.6666665459e-1f;
  series = series * r + 5.0000001201e-1f;
  series = series * r * r + r + 1.0f;
  const auto power = (as_bits<Lanes<uint32_t, W>>(shifted) + 127u) << 23;
  const V value = series * as_bits<V>(power);
  return x < -87.3f ? V{} : value;
}
template <int W>
[[gnu::always_inline]] inline Lanes<double, W> exponential(const Lanes<double, W>& x) {
  if constexpr (W == 1) {
    return __builtin_exp(x);
  } else {
    Lanes<double, W> value;
    for (int i = 0; i < W; ++i) value[i] = __builtin_exp(x[i]);
    return value;
  }
}

/// body(Width<W>, d) over [begin, end): whole vectors, then fours, then ones.
template <typename A, typename Body>
[[gnu::always_inline]] inline void over(int64_t begin, int64_t end, const Body& body) {
  constexpr int W = kLanes<A>;
  int64_t d = begin;
  for (; d + W <= end; d += W) body(Width<W>(), d);
  if constexpr (W > 4)
    for (; d + 4 <= end; d += 4) body(Width<4>(), d);
  for (; d < end; ++d) body(Width<1>(), d);
}

}  // namespace
}  // namespace mhar::kernels
