#include "ops/linear_into.h"

#include <torch/torch.h>

#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LinearInto : torch::autograd::Function<LinearInto> {
  // `slot` in a std::vector on purpose: autograd then takes it as a new value and not as an input.
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::vector<Tensor>& slot) {
    context->save_for_backward({x, weight});
    Tensor place = slot[0];
    at::mm_out(place, x, weight.t());
    return place;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    return {context->needs_input_grad(0) ? dy.mm(weight) : Tensor(),
            context->needs_input_grad(1) ? dy.t().mm(x) : Tensor(), Tensor()};
  }
};

}  // namespace

Tensor linear_into(const Tensor& x, const Tensor& weight, const Tensor& slot) {
  require_shape("linear_into", "slot", slot, {x.size(0), weight.size(0)});
  return LinearInto::apply(x, weight, std::vector<Tensor>{slot});
}

}  // namespace mhar::ops
