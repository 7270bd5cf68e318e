#include "ops/swiglu.h"

#include <torch/torch.h>

#include "kernels/swiglu/swiglu.h"
#include "ops/pointwise.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::SwigluSizes sizes_of(const Tensor& gate_up) {
  return {gate_up.size(0), gate_up.size(1) / 2, element_of(gate_up.scalar_type())};
}

const kernels::SwigluKernels* kernels_for(const Tensor& gate_up) {
  return pointwise_kernels("SwiGLU", gate_up.device(), kernels::swiglu_kernels_cpu(), kernels::swiglu_kernels_cuda(),
                           sizes_of(gate_up));
}

struct SwigluLinear : torch::autograd::Function<SwigluLinear> {
  // `place_and_slot` in a std::vector on purpose: autograd then takes them as values and not as inputs.
  static Tensor forward(AutogradContext* context, const Tensor& gate_up, const Tensor& down,
                        const std::vector<Tensor>& place_and_slot) {
    const Tensor& slot = place_and_slot[1];
    const auto sizes = sizes_of(gate_up);
    const Tensor inner = at::empty({sizes.rows, sizes.inner}, gate_up.options());
    require_launched("SwiGLU forward",
                     kernels_for(gate_up)->forward(sizes, {gate_up.const_data_ptr(), inner.data_ptr()},
                                                   depth_queue(gate_up.device())));
    context->save_for_backward({gate_up, down});
    context->saved_data["places"] = std::vector<Tensor>{place_and_slot[0]};
    Tensor result = slot.defined() ? slot : at::empty({sizes.rows, down.size(0)}, gate_up.options());
    return at::mm_out(result, inner, down.t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_no_second_derivative("SwiGLU");
    const auto saved = context->get_saved_variables();
    const Tensor &gate_up = saved[0], &down = saved[1], &dy = gradients[0];
    const auto sizes = sizes_of(gate_up);
    const Tensor dinner = dy.mm(down), inner = at::empty_like(dinner), dgate_up = at::empty_like(gate_up);
    require_launched(
        "SwiGLU backward",
        kernels_for(gate_up)->backward(
            sizes, {gate_up.const_data_ptr(), dinner.const_data_ptr(), dgate_up.data_ptr(), inner.data_ptr()},
            depth_queue(gate_up.device())));
    if (!down.requires_grad()) return {dgate_up, Tensor(), Tensor()};
    const auto places = context->saved_data["places"].toTensorVector();
    return {dgate_up, weight_gradients(inner, dy, {down}, places)[0], Tensor()};
  }
};

}  // namespace

Tensor swiglu_linear(const Tensor& gate_up, const LinearWeight& down, const Tensor& slot) {
  require_shape("swiglu_linear", "gate_up", gate_up, {gate_up.size(0), 2 * down.value.size(1)});
  if (slot.defined()) require_shape("swiglu_linear", "slot", slot, {gate_up.size(0), down.value.size(0)});
  if (kernels_for(gate_up)) {
    return SwigluLinear::apply(gate_up.contiguous(), down.value, std::vector<Tensor>{down.place, slot});
  }
  const auto halves = gate_up.chunk(2, 1);
  return linear(at::silu(halves[0]) * halves[1], {down}, slot);
}

}  // namespace mhar::ops
