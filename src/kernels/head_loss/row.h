#pragma once
// What a row's sums give: shared by the CPU and the CUDA kernel. static, since units of several instruction sets
// include it and the linker must not take one's code for another's.
#include <cmath>

#include "kernels/host_device.h"

namespace mhar::kernels {

/// Numbers of one row with target y: x its logit, `largest` the row's largest logit, `others` the sum of
/// exp(logit - largest) over all classes but y.
struct HeadLossRow {
  float loss, lse;
  float target;  ///< gradient by the logit of y, before the weight
  float share;   ///< gradient by any other logit, before the weight, over its exp(logit - largest)
};

/// Eq. 21 and 23.
MHAR_HOST_DEVICE static inline HeadLossRow head_loss_row(float x, float largest, float others, float z_loss) {
  const float mine = expf(x - largest), total = others + mine;
  // Close to 1 the logarithm takes what is beyond 1 on its own, or a nearly certain target would lose it.
  const float log_total = x == largest ? log1pf(others) : logf(total);
  HeadLossRow row;
  row.loss = (largest - x) + log_total;
  row.lse = largest + log_total;
  const float through_z = 2.0f * z_loss * row.lse;
  row.target = (through_z * mine - others) / total;
  row.share = (1.0f + through_z) / total;
  return row;
}

}  // namespace mhar::kernels
