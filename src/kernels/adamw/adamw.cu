#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/update.h"
#include "kernels/bfloat16.h"
#include "kernels/random.h"

namespace mhar::kernels {
namespace {

// A thread owns a group of eight elements: two random blocks, 16 bytes of bf16. Whole groups on 16 bytes, which is
// nearly all there ever is, have a kernel that is bound by memory; the ends of a range have one that looks at every
// element. The number types are run-time switches: every thread of a launch takes the same way.
constexpr int kGroup = 8;
constexpr int kThreads = 256;

/// Correctly rounded for operands of ordinary size, without a branch: what the processor's own division and root do
/// before they look for special cases. `rare` becomes true where a moment is neither of that size nor zero, as those of
/// embedding rows without a token are; the result is void then. The divisor needs no look: it follows from the second
/// moment, see ordinary().
struct OrdinaryOperands {
  bool rare = false;

  __device__ float quotient(float a, float b) {
    rare |= !(fabsf(a) > 0x1p-90f && fabsf(a) < 0x1p60f) && a != 0.0f;
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
    r = __fmaf_rn(r, __fmaf_rn(-b, r, 1.0f), r);
    const float q = __fmul_rn(a, r);
    return a == 0.0f ? a : __fmaf_rn(r, __fmaf_rn(-b, q, a), q);
  }

  __device__ float root(float a) {
    rare |= !(a > 0x1p-100f && a < 0x1p40f) && a != 0.0f;
    float r;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(a));
    const float q = __fmul_rn(a, r);
    return a == 0.0f ? a : __fmaf_rn(__fmaf_rn(-q, q, a), __fmul_rn(0.5f, r), q);
  }
};

/// Whether such second moments give divisors between 2^-51 and 2^36, all quotients by which are ordinary.
__device__ bool ordinary(const AdamwScalars& scalars, const AdamwStep& step) {
  return scalars.eps >= 0x1p-51f && scalars.eps < 0x1p30f && step.root_scale >= 1.0f && step.root_scale < 0x1p15f;
}

struct Values {
  float at[kGroup];
};

__device__ Values load_group(Element type, const void* base, int64_t group) {
  Values values;
  if (type == Element::f32) {
    const float4* at = static_cast<const float4*>(base) + 2 * group;
    *reinterpret_cast<float4*>(values.at) = at[0];
    *reinterpret_cast<float4*>(values.at + 4) = at[1];
  } else {
    const uint4 words = static_cast<const uint4*>(base)[group];
    const uint32_t pairs[kGroup / 2] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      values.at[i] = float_from_bits(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xFFFF0000u);
    }
  }
  return values;
}

__device__ void store_pairs(void* base, int64_t group, const uint32_t (&pairs)[kGroup / 2]) {
  static_cast<uint4*>(base)[group] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
}

/// Eq. 28 for values that are numbers.
__device__ void store_nearest(Element type, void* base, int64_t group, const Values& values) {
  if (type == Element::f32) {
    float4* at = static_cast<float4*>(base) + 2 * group;
    at[0] = *reinterpret_cast<const float4*>(values.at);
    at[1] = *reinterpret_cast<const float4*>(values.at + 4);
    return;
  }
  uint32_t pairs[kGroup / 2];
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(values.at[2 * i], values.at[2 * i + 1]);
    pairs[i] = *reinterpret_cast<const uint32_t*>(&pair);
  }
  store_pairs(base, group, pairs);
}

/// Eq. 29 for values below the largest bfloat16: the carry out of the bits that are dropped is all there is to it.
__device__ void store_stochastic(const AdamwArguments& a, uint64_t update, int64_t group, const Values& values) {
  uint32_t pairs[kGroup / 2];
#pragma unroll
  for (int b = 0; b < kGroup / 4; ++b) {
    const RandomBlock random = random_block(a.seed, update, static_cast<uint64_t>(group * (kGroup / 4) + b));
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
      const uint32_t low = float_bits(values.at[4 * b + i]) + (random.word[i] & 0xFFFFu);
      const uint32_t high = float_bits(values.at[4 * b + i + 1]) + (random.word[i + 1] & 0xFFFFu);
      pairs[2 * b + i / 2] = __byte_perm(low, high, 0x7632);
    }
  }
  store_pairs(a.parameter, group, pairs);
}

__device__ bool rounds_stochastically(const AdamwArguments& a) {
  return a.rounding == Rounding::stochastic && a.parameter_type == Element::bf16 && a.master == nullptr;
}

__device__ float load_one(Element type, const void* base, int64_t i) {
  return type == Element::f32 ? static_cast<const float*>(base)[i]
                              : bfloat16_to_float(static_cast<const uint16_t*>(base)[i]);
}

__device__ void store_one(Element type, void* base, int64_t i, float value) {
  if (type == Element::f32) {
    static_cast<float*>(base)[i] = value;
  } else {
    static_cast<uint16_t*>(base)[i] = bfloat16_nearest(value);
  }
}

/// An element whatever it holds.
__device__ void update_one(const AdamwArguments& a, const AdamwScalars& scalars, const AdamwStep& step, float clip,
                           int64_t i) {
  float parameter = a.master != nullptr ? a.master[i] : load_one(a.parameter_type, a.parameter, i);
  float moment1 = load_one(a.moment_type, a.moment1, i), moment2 = load_one(a.moment_type, a.moment2, i);
  const float gradient = load_one(a.gradient_type, a.gradient, i - a.gradient_from);
  adamw_update(scalars, step, clip, gradient, parameter, moment1, moment2, AnyOperands());
  store_one(a.moment_type, a.moment1, i, moment1);
  store_one(a.moment_type, a.moment2, i, moment2);
  if (a.master != nullptr) a.master[i] = parameter;
  if (rounds_stochastically(a)) {
    static_cast<uint16_t*>(a.parameter)[i] =
        bfloat16_stochastic(parameter, random_bits(a.seed, step.update, static_cast<uint64_t>(i)));
  } else {
    store_one(a.parameter_type, a.parameter, i, parameter);
  }
}

__global__ void __launch_bounds__(kThreads)
    single_elements_kernel(AdamwSizes sizes, AdamwArguments a, AdamwScalars scalars) {
  const int64_t i = sizes.begin + int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= sizes.begin + sizes.count || (a.clip != nullptr && a.clip->stopped)) return;
  update_one(a, scalars, *a.step, a.clip != nullptr ? a.clip->factor : 1.0f, i);
}

__global__ void __launch_bounds__(kThreads, 4)
    whole_groups_kernel(AdamwArguments a, AdamwScalars scalars, int64_t first, int64_t end) {
  const int64_t group = first + int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (group >= end) return;
  const bool master = a.master != nullptr;
  const Values gradient = load_group(a.gradient_type, a.gradient, group - a.gradient_from / kGroup);
  Values moment1 = load_group(a.moment_type, a.moment1, group), moment2 = load_group(a.moment_type, a.moment2, group);
  Values parameter =
      master ? load_group(Element::f32, a.master, group) : load_group(a.parameter_type, a.parameter, group);
  // Read behind the buffers, whose loads are on their way meanwhile.
  if (a.clip != nullptr && a.clip->stopped) return;
  const float clip = a.clip != nullptr ? a.clip->factor : 1.0f;
  const AdamwStep step = *a.step;
  OrdinaryOperands operands{!ordinary(scalars, step)};
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    adamw_update(scalars, step, clip, gradient.at[i], parameter.at[i], moment1.at[i], moment2.at[i], operands);
    operands.rare |= !(fabsf(parameter.at[i]) < 0x1p127f);
  }
  if (operands.rare) {
#pragma unroll 1
    for (int i = 0; i < kGroup; ++i) update_one(a, scalars, step, clip, group * kGroup + i);
    return;
  }
  store_nearest(a.moment_type, a.moment1, group, moment1);
  store_nearest(a.moment_type, a.moment2, group, moment2);
  if (master) store_nearest(Element::f32, a.master, group, parameter);
  if (rounds_stochastically(a)) {
    store_stochastic(a, step.update, group, parameter);
  } else {
    store_nearest(a.parameter_type, a.parameter, group, parameter);
  }
}

unsigned blocks_for(int64_t items) { return static_cast<unsigned>((items + kThreads - 1) / kThreads); }

int launch_single(int64_t begin, int64_t end, const AdamwArguments& a, cudaStream_t stream) {
  if (begin >= end) return cudaSuccess;
  single_elements_kernel<<<blocks_for(end - begin), kThreads, 0, stream>>>({begin, end - begin}, a, AdamwScalars(a));
  return cudaGetLastError();
}

bool aligned(const AdamwArguments& a) {
  for (const void* base : {static_cast<const void*>(a.parameter), a.gradient, static_cast<const void*>(a.moment1),
                           static_cast<const void*>(a.moment2), static_cast<const void*>(a.master)}) {
    if (reinterpret_cast<uintptr_t>(base) % 16 != 0) return false;
  }
  return true;
}

}  // namespace

int adamw_cuda(const AdamwSizes& sizes, const AdamwArguments& arguments, void* queue) {
  const auto stream = static_cast<cudaStream_t>(queue);
  const int64_t begin = sizes.begin, end = begin + sizes.count;
  const int64_t first = (begin + kGroup - 1) / kGroup, last = end / kGroup;
  if (first >= last || !aligned(arguments)) return launch_single(begin, end, arguments, stream);
  if (const int code = launch_single(begin, first * kGroup, arguments, stream); code != cudaSuccess) return code;
  whole_groups_kernel<<<blocks_for(last - first), kThreads, 0, stream>>>(arguments, AdamwScalars(arguments), first,
                                                                         last);
  if (const auto code = cudaGetLastError(); code != cudaSuccess) return code;
  return launch_single(last * kGroup, end, arguments, stream);
}

}  // namespace mhar::kernels
