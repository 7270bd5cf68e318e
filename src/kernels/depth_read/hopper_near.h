#pragma once
#include "kernels/depth_read/depth_read.h"

namespace mhar::kernels::hopper {

/// Null if the near passes take this shape, otherwise why not, as the end of "... takes no ".
const char* near_refuses(const DepthSizes& z);

}  // namespace mhar::kernels::hopper
