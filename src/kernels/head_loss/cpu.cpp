#include "kernels/head_loss/passes.h"
#include "kernels/pointwise/passes.h"

namespace mhar::kernels {
namespace {

const char* refuses(const HeadLossSizes& z) {
  return z.type == Element::f32 || z.type == Element::bf16 ? nullptr : "other types than fp32 and bf16";
}

int run(const HeadLossSizes& z, const HeadLoss& a, void* queue) {
  // The level is chosen in one place, for the pointwise passes.
  const PointwisePasses* level = &pointwise_passes();
  const HeadLossPass pass = level == &pointwise_passes_avx512 ? head_loss_avx512
                            : level == &pointwise_passes_avx2 ? head_loss_avx2
                                                              : head_loss_any;
  pass(z, a, queue);
  return 0;
}

}  // namespace

const HeadLossKernels& head_loss_kernels_cpu() {
  static const HeadLossKernels kernels{refuses, run};
  return kernels;
}

}  // namespace mhar::kernels
