#include "kernels/attention/attention.h"

namespace mhar::kernels {

std::unique_ptr<CudnnAttention> CudnnAttention::build(const AttentionSizes&, std::string& refusal) {
  refusal = "build without CUDA or the headers of cuDNN's front end";
  return nullptr;
}

}  // namespace mhar::kernels
