#pragma once
// The arithmetic of one element, shared by the CPU loop and the CUDA kernel. Bit for bit agreement rests on three
// things: no product is fused with a sum (this folder is compiled with -ffp-contract=off, and the _rn intrinsics are
// never fused), division and square root are correctly rounded on both sides, and subnormals are kept on both sides.
#include <cmath>

#include "kernels/adamw/adamw.h"
#include "kernels/host_device.h"

namespace mhar::kernels {

#ifdef __CUDA_ARCH__
__device__ inline float product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float sum(float a, float b) { return __fadd_rn(a, b); }
#else
MHAR_HOST_DEVICE inline float product(float a, float b) { return a * b; }
MHAR_HOST_DEVICE inline float sum(float a, float b) { return a + b; }
#endif

/// Correctly rounded whatever the operands.
struct AnyOperands {
#ifdef __CUDA_ARCH__
  static __device__ float quotient(float a, float b) { return __fdiv_rn(a, b); }
  static __device__ float root(float a) { return __fsqrt_rn(a); }
#else
  static MHAR_HOST_DEVICE float quotient(float a, float b) { return a / b; }
  static MHAR_HOST_DEVICE float root(float a) { return sqrtf(a); }
#endif
};

/// The constants of all updates, rounded once.
struct AdamwScalars {
  float beta1, rest1, beta2, rest2, eps;

  explicit AdamwScalars(const AdamwArguments& a)
      : beta1(static_cast<float>(a.beta1)),
        rest1(static_cast<float>(1.0 - a.beta1)),
        beta2(static_cast<float>(a.beta2)),
        rest2(static_cast<float>(1.0 - a.beta2)),
        eps(static_cast<float>(a.eps)) {}
};

/// Eq. 26 and 27, with the corrections folded into the rate and the root: one division and one root per element.
template <typename Operands>
MHAR_HOST_DEVICE inline void adamw_update(const AdamwScalars& s, const AdamwStep& t, float clip, float gradient,
                                          float& parameter, float& moment1, float& moment2, Operands&& operands) {
  const float g = product(gradient, clip);
  moment1 = sum(product(moment1, s.beta1), product(g, s.rest1));
  moment2 = sum(product(moment2, s.beta2), product(product(g, g), s.rest2));
  const float denominator = sum(product(operands.root(moment2), t.root_scale), s.eps);
  parameter = sum(product(parameter, t.keep), product(t.step, operands.quotient(moment1, denominator)));
}

}  // namespace mhar::kernels
