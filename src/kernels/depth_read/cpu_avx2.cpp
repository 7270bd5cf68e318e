#include "kernels/depth_read/cpu_level.h"

namespace mhar::kernels {

const CpuPasses cpu_passes_avx2 = kLevelPasses;

}  // namespace mhar::kernels
