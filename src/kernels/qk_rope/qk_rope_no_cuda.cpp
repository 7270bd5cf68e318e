#include "kernels/cuda_status.h"
#include "kernels/qk_rope/qk_rope.h"

namespace mhar::kernels {

const QkRopeKernels& qk_rope_kernels_cuda() {
  static const QkRopeKernels kernels{
      [](const QkRopeSizes&) { return "anything: this build has no CUDA kernels"; },
      [](const QkRopeSizes&) { return int64_t{0}; },
      [](const QkRopeSizes&, const QkRopeForward&, void*) { return not_built_with_cuda; },
      [](const QkRopeSizes&, const QkRopeBackward&, void*) { return not_built_with_cuda; }};
  return kernels;
}

}  // namespace mhar::kernels
