#include "kernels/cuda_status.h"
#include "kernels/norm/norm.h"

namespace mhar::kernels {

const NormKernels& norm_kernels_cuda() {
  static const NormKernels kernels{[](const NormSizes&) { return "anything: this build has no CUDA kernels"; },
                                   [](const NormSizes&) { return int64_t{0}; },
                                   [](const NormSizes&, const NormForward&, void*) { return not_built_with_cuda; },
                                   [](const NormSizes&, const NormBackward&, void*) { return not_built_with_cuda; }};
  return kernels;
}

}  // namespace mhar::kernels
