#include "kernels/cuda_status.h"
#include "kernels/swiglu/swiglu.h"

namespace mhar::kernels {

const SwigluKernels& swiglu_kernels_cuda() {
  static const SwigluKernels kernels{
      [](const SwigluSizes&) { return "anything: this build has no CUDA kernels"; },
      [](const SwigluSizes&, const SwigluForward&, void*) { return not_built_with_cuda; },
      [](const SwigluSizes&, const SwigluBackward&, void*) { return not_built_with_cuda; }};
  return kernels;
}

}  // namespace mhar::kernels
