#include <cuda_runtime.h>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw/update.h"
#include "kernels/bfloat16.h"
#include "kernels/random.h"

namespace mhar::kernels {
namespace {

// A thread owns the elements of two random blocks, 16 bytes of bf16. The number types are run-time switches: every
// thread of a launch takes the same way, the kernel is bound by memory, and one instance serves all combinations.
constexpr int kGroup = 8;
constexpr int kThreads = 256;

struct Lanes {
  int64_t first;  // absolute position of lane 0, a multiple of kGroup
  int from, to;   // lanes inside the range
  bool whole;     // all lanes inside and every buffer on 16 bytes
};

__device__ void load(Element type, const void* base, const Lanes& lanes, float (&value)[kGroup]) {
  if (type == Element::f32) {
    const float* at = static_cast<const float*>(base) + lanes.first;
    if (lanes.whole) {
      *reinterpret_cast<float4*>(value) = *reinterpret_cast<const float4*>(at);
      *reinterpret_cast<float4*>(value + 4) = *reinterpret_cast<const float4*>(at + 4);
      return;
    }
#pragma unroll
    for (int i = 0; i < kGroup; ++i) value[i] = i >= lanes.from && i < lanes.to ? at[i] : 0.0f;
  } else {
    const uint16_t* at = static_cast<const uint16_t*>(base) + lanes.first;
    if (lanes.whole) {
      const uint4 words = *reinterpret_cast<const uint4*>(at);
      const uint32_t pairs[kGroup / 2] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        value[i] = float_from_bits(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xFFFF0000u);
      }
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
    *reinterpret_cast<float4*>(at + 4) = make_float4(value[4], value[5], value[6], value[7]);
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
    const auto pair = [&](int i) { return value[i] | uint32_t{value[i + 1]} << 16; };
    *reinterpret_cast<uint4*>(at) = make_uint4(pair(0), pair(2), pair(4), pair(6));
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

  alignas(16) float parameter[kGroup], gradient[kGroup], moment1[kGroup], moment2[kGroup];
  if (arguments.master != nullptr) {
    load(Element::f32, arguments.master, lanes, parameter);
  } else {
    load(arguments.parameter_type, arguments.parameter, lanes, parameter);
  }
  Lanes piece = lanes;
  piece.first -= arguments.gradient_from;
  load(arguments.gradient_type, arguments.gradient, piece, gradient);
  load(arguments.moment_type, arguments.moment1, lanes, moment1);
  load(arguments.moment_type, arguments.moment2, lanes, moment2);
  // Read behind the buffers, whose loads are on their way meanwhile.
  if (arguments.clip != nullptr && arguments.clip->stopped) return;
  const float clip = arguments.clip != nullptr ? arguments.clip->factor : 1.0f;
  const AdamwStep step = *arguments.step;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) {
    adamw_update(scalars, step, clip, gradient[i], parameter[i], moment1[i], moment2[i]);
  }
  store_nearest(arguments.moment_type, arguments.moment1, lanes, moment1);
  store_nearest(arguments.moment_type, arguments.moment2, lanes, moment2);
  if (arguments.master != nullptr) store(arguments.master, lanes, parameter);
  if (arguments.rounding == Rounding::stochastic && arguments.parameter_type == Element::bf16 &&
      arguments.master == nullptr) {
    uint16_t rounded[kGroup];
#pragma unroll
    for (int b = 0; b < kGroup / 4; ++b) {
      const RandomBlock random =
          random_block(arguments.seed, step.update, static_cast<uint64_t>(group * (kGroup / 4) + b));
#pragma unroll
      for (int i = 0; i < 4; ++i) rounded[4 * b + i] = bfloat16_stochastic(parameter[4 * b + i], random.word[i]);
    }
    store(arguments.parameter, lanes, rounded);
  } else {
    store_nearest(arguments.parameter_type, arguments.parameter, lanes, parameter);
  }
}

bool aligned(const void* base) { return reinterpret_cast<uintptr_t>(base) % 16 == 0; }

}  // namespace

int adamw_cuda(const AdamwSizes& sizes, const AdamwArguments& arguments, void* stream) {
  if (sizes.count == 0) return cudaSuccess;
  const int64_t groups = (sizes.begin + sizes.count + kGroup - 1) / kGroup - sizes.begin / kGroup;
  const int64_t blocks = (groups + kThreads - 1) / kThreads;
  const bool all_aligned = aligned(arguments.parameter) && aligned(arguments.gradient) && aligned(arguments.moment1) &&
                           aligned(arguments.moment2) && aligned(arguments.master);
  adamw_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      sizes, arguments, AdamwScalars(arguments), all_aligned);
  return cudaGetLastError();
}

}  // namespace mhar::kernels
