#include "kernels/cuda_status.h"

namespace mhar::kernels {

bool built_with_cuda() { return false; }

const char* cuda_error_text(int code) { return code == 0 ? "no error" : "this build has no CUDA kernels"; }

}  // namespace mhar::kernels
