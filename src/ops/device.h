#pragma once
#include "kernels/cuda_status.h"

namespace mhar::ops {

/// Whether this build contains the CUDA kernels that training needs; says nothing about a device being there.
inline bool built_with_cuda() { return kernels::built_with_cuda(); }

}  // namespace mhar::ops
