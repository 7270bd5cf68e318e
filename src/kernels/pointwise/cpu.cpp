#include "kernels/pointwise/passes.h"

namespace mhar::kernels {
namespace {

const PointwisePasses& choose() {
#if defined(__x86_64__)
  // What the two levels x86-64-v3 and v4 are told apart by; clang knows no name for the levels here.
  const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  if (v3 && v4) return pointwise_passes_avx512;
  if (v3) return pointwise_passes_avx2;
#endif
  return pointwise_passes_any;
}

bool taken(Element type) { return type == Element::f32 || type == Element::bf16; }
constexpr const char* kTypes = "other types than fp32 and bf16";

const char* norm_refuses(const NormSizes& z) { return taken(z.type) ? nullptr : kTypes; }
int64_t norm_scratch(const NormSizes& z) { return kRowRanges * z.width * 4; }
int norm_forward(const NormSizes& z, const NormForward& f, void* queue) {
  pointwise_passes().norm_forward(z, f, queue);
  return 0;
}
int norm_backward(const NormSizes& z, const NormBackward& b, void* queue) {
  pointwise_passes().norm_backward(z, b, queue);
  return 0;
}

const char* qk_rope_refuses(const QkRopeSizes& z) {
  if (!taken(z.type)) return kTypes;
  return z.head_dim % 2 == 0 && z.head_dim <= 256 ? nullptr : "head dimensions that are odd or above 256";
}
int64_t qk_rope_scratch(const QkRopeSizes& z) { return kRowRanges * 2 * z.head_dim * 4; }
int qk_rope_forward(const QkRopeSizes& z, const QkRopeForward& f, void* queue) {
  pointwise_passes().qk_rope_forward(z, f, queue);
  return 0;
}
int qk_rope_backward(const QkRopeSizes& z, const QkRopeBackward& b, void* queue) {
  pointwise_passes().qk_rope_backward(z, b, queue);
  return 0;
}

const char* swiglu_refuses(const SwigluSizes& z) { return taken(z.type) ? nullptr : kTypes; }
int swiglu_forward(const SwigluSizes& z, const SwigluForward& f, void* queue) {
  pointwise_passes().swiglu_forward(z, f, queue);
  return 0;
}
int swiglu_backward(const SwigluSizes& z, const SwigluBackward& b, void* queue) {
  pointwise_passes().swiglu_backward(z, b, queue);
  return 0;
}

}  // namespace

const PointwisePasses& pointwise_passes() {
  static const PointwisePasses& chosen = choose();
  return chosen;
}

const NormKernels& norm_kernels_cpu() {
  static const NormKernels kernels{norm_refuses, norm_scratch, norm_forward, norm_backward};
  return kernels;
}
const QkRopeKernels& qk_rope_kernels_cpu() {
  static const QkRopeKernels kernels{qk_rope_refuses, qk_rope_scratch, qk_rope_forward, qk_rope_backward};
  return kernels;
}
const SwigluKernels& swiglu_kernels_cpu() {
  static const SwigluKernels kernels{swiglu_refuses, swiglu_forward, swiglu_backward};
  return kernels;
}

}  // namespace mhar::kernels
