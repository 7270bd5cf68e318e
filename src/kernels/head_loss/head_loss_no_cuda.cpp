#include "kernels/cuda_status.h"
#include "kernels/head_loss/head_loss.h"

namespace mhar::kernels {

const HeadLossKernels& head_loss_kernels_cuda() {
  static const HeadLossKernels kernels{
      [](const HeadLossSizes&) { return "anything: this build has no CUDA kernels"; },
      [](const HeadLossSizes&, const HeadLoss&, void*) { return not_built_with_cuda; }};
  return kernels;
}

}  // namespace mhar::kernels
