#include "kernels/pointwise/cpu_level.h"

namespace mhar::kernels {

const PointwisePasses pointwise_passes_avx512 = kLevelPasses;

}  // namespace mhar::kernels
