#include <cuda_runtime_api.h>

#include "kernels/cuda_status.h"

namespace mhar::kernels {

bool built_with_cuda() { return true; }

const char* cuda_error_text(int code) { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

}  // namespace mhar::kernels
