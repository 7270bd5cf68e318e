#include "kernels/pointwise/cpu_level.h"

namespace mhar::kernels {

const PointwisePasses pointwise_passes_any = kLevelPasses;

}  // namespace mhar::kernels
