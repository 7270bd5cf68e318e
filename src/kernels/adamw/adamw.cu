#include <cuda_runtime.h>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/update.h"
#include "kernels/bfloat16.h"
#include "kernels/random.h"

namespace mhar::kernels {
namespace {

// A thread owns the four elements of one random block. The number types are run-time switches: every thread of a launch
// takes the same way, the kernel is bound by memory, and one instance serves all combinations.
constexpr int kGroup = 4;
constexpr int kThreads = 256;

struct Lanes {
  int64_t first;  // absolute position of lane 0, a multiple of kGroup
  int from, to;   // lanes inside the range
  bool whole;     // all lanes inside and every buffer aligned for one access of kGroup elements
};

__device__ void load(Element type, const void* base, const Lanes& lanes, float (&value)[kGroup]) {
  if (type == Element::f32) {
    const float* at = static_cast<const float*>(base) + lanes.first;
    if (lanes.whole) {
      const float4 four = *reinterpret_cast<const float4*>(at);
      value[0] = four.x, value[1] = four.y, value[2] = four.z, value[3] = four.w;
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) value[i] = i >= lanes.from && i < lanes.to ? at[i] : 0.0f;
  } else {
    const uint16_t* at = static_cast<const uint16_t*>(base) + lanes.first;
    if (lanes.whole) {
      const ushort4 four = *reinterpret_cast<const ushort4*>(at);
      value[0] = bfloat16_to_float(four.x), value[1] = bfloat16_to_float(four.y);
      value[2] = bfloat16_to_float(four.z), value[3] = bfloat16_to_float(four.w);
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) value[i] = i >= lanes.from && i < lanes.to ? bfloat16_to_float(at[i]) : 0.0f;
  }
}

__device__ void store(void* base, const Lanes& lanes, const float (&value)[kGroup]) {
  float* at = static_cast<float*>(base) + lanes.first;
  if (lanes.whole) {
    *reinterpret_cast<float4*>(at) = make_float4(value[0], value[1], value[2], value[3]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (i >= lanes.from && i < lanes.to) at[i] = value[i];
  }
}

__device__ void store(void* base, const Lanes& lanes, const uint16_t (&value)[kGroup]) {
  uint16_t* at = static_cast<uint16_t*>(base) + lanes.first;
  if (lanes.whole) {
    *reinterpret_cast<ushort4*>(at) = make_ushort4(value[0], value[1], value[2], value[3]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    if (i >= lanes.from && i < lanes.to) at[i] = value[i];
  }
}

__device__ void store_nearest(Element type, void* base, const Lanes& lanes, const float (&value)[kGroup]) {
  if (type == Element::f32) {
    store(base, lanes, value);
    return;
  }
  uint16_t rounded[kGroup];
#pragma unroll
  for (int i = 0; i < kGroup; ++i) rounded[i] = bfloat16_nearest(value[i]);
  store(base, lanes, rounded);
}

__global__ void __launch_bounds__(kThreads)
    adamw_kernel(AdamwSizes sizes, AdamwArguments arguments, AdamwScalars scalars, bool aligned) {
  const int64_t group = sizes.begin / kGroup + int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t end = sizes.begin + sizes.count;
  Lanes lanes;
  lanes.first = group * kGroup;
  lanes.from = static_cast<int>(max(sizes.begin - lanes.first, int64_t{0}));
  lanes.to = static_cast<int>(min(end - lanes.first, int64_t{kGroup}));
  if (lanes.to <= lanes.from) return;
  lanes.whole = aligned && lanes.from == 0 && lanes.to == kGroup;

  float parameter[kGroup], gradient[kGroup], moment1[kGroup], moment2[kGroup];
  if (arguments.master != nullptr) {
    load(Element::f32, arguments.master, lanes, parameter);
  } else {
    load(arguments.parameter_type, arguments.parameter, lanes, parameter);
  }
  load(arguments.gradient_type, arguments.gradient, lanes, gradient);
  load(arguments.moment_type, arguments.moment1, lanes, moment1);
  load(arguments.moment_type, arguments.moment2, lanes, moment2);
#pragma unroll
  for (int i = 0; i < kGroup; ++i) adamw_update(scalars, gradient[i], parameter[i], moment1[i], moment2[i]);
  store_nearest(arguments.moment_type, arguments.moment1, lanes, moment1);
  store_nearest(arguments.moment_type, arguments.moment2, lanes, moment2);
  if (arguments.master != nullptr) store(arguments.master, lanes, parameter);
  if (arguments.rounding == Rounding::stochastic && arguments.parameter_type == Element::bf16 &&
      arguments.master == nullptr) {
    const RandomBlock random = random_block(arguments.seed, arguments.update, static_cast<uint64_t>(group));
    uint16_t rounded[kGroup];
#pragma unroll
    for (int i = 0; i < kGroup; ++i) rounded[i] = bfloat16_stochastic(parameter[i], random.word[i]);
    store(arguments.parameter, lanes, rounded);
  } else {
    store_nearest(arguments.parameter_type, arguments.parameter, lanes, parameter);
  }
}

bool aligned(const void* base, Element type) {
  return reinterpret_cast<uintptr_t>(base) % static_cast<uintptr_t>(kGroup * bytes_of(type)) == 0;
}

}  // namespace

int adamw_cuda(const AdamwSizes& sizes, const AdamwArguments& arguments, void* stream) {
  if (sizes.count == 0) return cudaSuccess;
  const int64_t groups = (sizes.begin + sizes.count + kGroup - 1) / kGroup - sizes.begin / kGroup;
  const int64_t blocks = (groups + kThreads - 1) / kThreads;
  const bool all_aligned =
      aligned(arguments.parameter, arguments.parameter_type) && aligned(arguments.gradient, arguments.gradient_type) &&
      aligned(arguments.moment1, arguments.moment_type) && aligned(arguments.moment2, arguments.moment_type) &&
      (arguments.master == nullptr || aligned(arguments.master, Element::f32));
  adamw_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      sizes, arguments, AdamwScalars(arguments), all_aligned);
  return cudaGetLastError();
}

}  // namespace mhar::kernels
