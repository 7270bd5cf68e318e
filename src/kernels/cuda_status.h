#pragma once

namespace mhar::kernels {

/// What every *_cuda function returns in a build without CUDA. Otherwise they return 0 or a cudaError_t.
inline constexpr int not_built_with_cuda = -1;

/// Whether this build contains the CUDA kernels; says nothing about a device being there.
bool built_with_cuda();

/// Words for a non-zero return value of a *_cuda function.
const char* cuda_error_text(int code);

}  // namespace mhar::kernels
