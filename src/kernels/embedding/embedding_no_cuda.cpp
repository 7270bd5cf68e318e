#include "kernels/cuda_status.h"
#include "kernels/embedding/embedding.h"

namespace mhar::kernels {

const EmbeddingKernels& embedding_kernels_cuda() {
  static const EmbeddingKernels kernels{
      [](const EmbeddingSizes&) { return "anything: this build has no CUDA kernels"; },
      [](const EmbeddingSizes&) { return int64_t{0}; },
      [](const EmbeddingSizes&, const EmbeddingBackward&, void*) { return not_built_with_cuda; }};
  return kernels;
}

}  // namespace mhar::kernels
