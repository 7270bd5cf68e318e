#include "ops/linear_into.h"

#include "ops/linear.h"
#include "ops/shapes.h"

namespace mhar::ops {

at::Tensor linear_into(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& slot) {
  require_shape("linear_into", "slot", slot, {x.size(0), weight.size(0)});
  return linear(x, {{weight, {}}}, slot);
}

}  // namespace mhar::ops
