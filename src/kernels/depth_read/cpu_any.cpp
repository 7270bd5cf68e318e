#include "kernels/depth_read/cpu_level.h"

namespace mhar::kernels {

const CpuPasses cpu_passes_any = kLevelPasses;

}  // namespace mhar::kernels
