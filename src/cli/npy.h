#pragma once
#include <ATen/ATen.h>

#include "base/file.h"

namespace mhar::cli {

/// Writes a contiguous fp32 CPU tensor as a .npy array that numpy.load opens.
void write_npy(const fs::path& path, const at::Tensor& tensor);

}  // namespace mhar::cli
