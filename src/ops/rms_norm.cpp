#include "ops/rms_norm.h"

#include <torch/torch.h>

#include "ops/precision.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

std::tuple<Tensor, Tensor> gradients_of(const Tensor& x, const Tensor& weight, const Tensor& rho,
                                        const Tensor& gradient) {
  const int64_t width = x.size(-1);
  const auto type = compute_type(x);
  const Tensor dy = gradient.to(type).contiguous();  // sums in one order whatever the layout
  const Tensor normalised = x.to(type).mul(rho);
  const Tensor dweight = at::mul(dy, normalised).reshape({-1, width}).sum(0).to(weight.scalar_type());
  const Tensor dn = dy.mul(weight.to(type));
  const Tensor along = at::mul(dn, normalised).mean(-1, /*keepdim=*/true);
  return {dn.addcmul(normalised, along, -1).mul_(rho).to(x.scalar_type()), dweight};
}

// Written out so that one statistic per row is all that is kept beside x, whatever the storage type.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    Tensor rho = inverse_rms(x, eps);
    context->save_for_backward({x, weight, rho});
    return x.to(compute_type(x)).mul(rho).to(x.scalar_type()).mul(weight);
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto [dx, dweight] = gradients_of(saved[0], saved[1], saved[2], gradients[0]);
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

Tensor inverse_rms(const Tensor& x, double eps) {
  at::NoGradGuard no_gradient;
  const Tensor wide = x.detach().to(compute_type(x));
  return wide.square().mean(-1, /*keepdim=*/true).add_(eps).rsqrt_();
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  require_shape("rms_norm", "weight", weight, {x.size(-1)});
  return RmsNorm::apply(x, weight, eps);
}

std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& x, const Tensor& weight, double eps, const Tensor& dy) {
  return gradients_of(x, weight, inverse_rms(x, eps), dy);
}

}  // namespace mhar::ops
