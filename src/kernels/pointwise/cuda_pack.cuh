#pragma once
// What the CUDA kernels of norm, qk_rope and swiglu share: elements in vectors of 16 bytes, and sums over rows.
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/element.h"

namespace mhar::kernels::pointwise {

/// V elements as they lie in memory: 16 bytes of them, or one where widths or addresses do not allow that.
template <typename T, int V>
struct Pack {
  alignas(V == 1 ? sizeof(T) : 16) T at[V];
};

template <int V, typename T>
__device__ inline Pack<T, V> load(const T* from) {
  Pack<T, V> pack;
  if constexpr (V == 1) {
    pack.at[0] = *from;
  } else {
    *reinterpret_cast<uint4*>(pack.at) = *reinterpret_cast<const uint4*>(from);
  }
  return pack;
}

/// To device memory. The compiler would cut a plain assignment into four narrow stores where the elements were computed
/// one by one.
template <typename T, int V>
__device__ inline void store(T* to, const Pack<T, V>& pack) {
  if constexpr (V == 1) {
    *to = pack.at[0];
  } else {
    const uint4 words = *reinterpret_cast<const uint4*>(pack.at);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(words.x),
                 "r"(words.y), "r"(words.z), "r"(words.w)
                 : "memory");
  }
}

template <typename T, int V>
__device__ inline void store_shared(T* to, const Pack<T, V>& pack) {
  if constexpr (V == 1) {
    *to = pack.at[0];
  } else {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pack.at);
  }
}

/// V floats from a table, which lie as the elements do.
template <int V>
__device__ inline void load_floats(const float* from, float (&to)[V]) {
  if constexpr (V == 1) {
    to[0] = *from;
  } else {
#pragma unroll
    for (int i = 0; i < V; i += 4) *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(from + i);
  }
}

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T narrow(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    return __float2bfloat16_rn(x);
  }
}

/// x as the storage type would keep it. In bf16 as the upper half of a pair, which is the float at once: a conversion
/// of one number runs at a quarter of the speed.
template <typename T>
__device__ inline float rounded(float x) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(x), "f"(0.0f));
    return __uint_as_float(pair);
  }
}

/// 2^(x log2 e) by the processor's approximation, good to 2^-22; results below 2^-126 are 0.
__device__ inline float quick_exp(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504f));
  return y;
}

/// index / divisor, by the short division where that is enough: the long one takes longer than a thread's memory.
__device__ inline int64_t quotient(int64_t index, int64_t divisor) {
  if ((index | divisor) >> 32 == 0) return static_cast<uint32_t>(index) / static_cast<uint32_t>(divisor);
  return index / divisor;
}

template <typename T>
inline constexpr int kWhole = 16 / static_cast<int>(sizeof(T));  ///< elements of a whole vector

/// Whether all of these lie on 16 bytes; null does.
inline bool aligned(std::initializer_list<const void*> all) {
  for (const void* one : all) {
    if (reinterpret_cast<uintptr_t>(one) % 16 != 0) return false;
  }
  return true;
}

/// Calls run.operator()<T, V>() with V whole vectors or single elements.
template <typename Run>
int with_element(Element type, bool whole, const Run& run) {
  if (type == Element::f32) {
    return whole ? run.template operator()<float, kWhole<float>>() : run.template operator()<float, 1>();
  }
  if (type == Element::bf16) {
    return whole ? run.template operator()<__nv_bfloat16, kWhole<__nv_bfloat16>>()
                 : run.template operator()<__nv_bfloat16, 1>();
  }
  return cudaErrorInvalidValue;
}

inline bool taken(Element type) { return type == Element::f32 || type == Element::bf16; }
inline constexpr const char* kTypes = "other types than fp32 and bf16";

/// Blocks of kernels that sum over rows: each leaves one row of partial sums.
inline constexpr int64_t kMostPartials = 1024;

/// How many blocks share `items` when `resident` of them fit a multiprocessor: as few as take the same number of
/// rounds.
int64_t persistent_blocks(int64_t items, int64_t resident);

/// Sums of the columns of `partials` [rows, first + second] in a fixed order, rounded to the storage type: the first
/// ones to `first_sums`, the others to `second_sums`. Returns a cudaError_t.
struct ColumnSums {
  const float* partials;
  int64_t rows;
  int64_t first;
  void* first_sums;
  int64_t second = 0;
  void* second_sums = nullptr;
};
int sum_columns(Element type, const ColumnSums& sums, void* queue);

}  // namespace mhar::kernels::pointwise
