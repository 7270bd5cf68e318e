#include "ops/add_norm.h"

#include <torch/torch.h>

#include "kernels/norm/norm.h"
#include "ops/pointwise.h"
#include "ops/rms_norm.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const kernels::NormKernels* kernels_for(const Tensor& x, double eps) {
  return pointwise_kernels("RMSNorm", x.device(), kernels::norm_kernels_cpu(), kernels::norm_kernels_cuda(),
                           kernels::NormSizes{x.size(0), x.size(1), element_of(x.scalar_type()), eps});
}

kernels::NormSizes sizes_of(const Tensor& x, double eps) {
  return {x.size(0), x.size(1), element_of(x.scalar_type()), eps};
}

// `output` is undefined where nothing is added; the sum then is `x` itself.
struct Forward {
  Tensor sum, normed, rho;

  Forward(const Tensor& x, const Tensor& output, const Tensor& weight, double eps)
      : sum(output.defined() ? at::empty_like(x) : x),
        normed(at::empty_like(x)),
        rho(at::empty({x.size(0)}, x.options().dtype(at::kFloat))) {
    kernels::NormForward f{};
    f.x = x.const_data_ptr();
    if (output.defined()) f.output = output.const_data_ptr(), f.sum = sum.data_ptr();
    f.weight = weight.const_data_ptr();
    f.normed = normed.data_ptr();
    f.rho = rho.data_ptr<float>();
    require_launched("RMSNorm forward", kernels_for(x, eps)->forward(sizes_of(x, eps), f, depth_queue(x.device())));
  }
};

/// dx and dweight. `saved`: the normed rows, weight, rho.
std::pair<Tensor, Tensor> gradients_of(const variable_list& saved, double eps, const Tensor& dnormed,
                                       const Tensor& dsum) {
  require_no_second_derivative("RMSNorm");
  const Tensor &x = saved[0], &weight = saved[1], &rho = saved[2];
  // Without a gradient of the normed rows only that of the sum passes, and the weight has none.
  if (!dnormed.defined()) return {dsum, at::zeros_like(weight)};
  const Tensor dy = dnormed.contiguous(), other = dsum.defined() ? dsum.contiguous() : Tensor();
  const auto* kernels = kernels_for(x, eps);
  const auto sizes = sizes_of(x, eps);
  const Tensor dx = at::empty_like(x), dweight = at::empty_like(weight);
  const Tensor scratch = at::empty({kernels->scratch_bytes(sizes)}, x.options().dtype(at::kByte));
  kernels::NormBackward b{};
  b.normed_gradient = dy.const_data_ptr();
  b.sum_gradient = other.defined() ? other.const_data_ptr() : nullptr;
  b.x = x.const_data_ptr();
  b.weight = weight.const_data_ptr();
  b.rho = rho.const_data_ptr<float>();
  b.x_gradient = dx.data_ptr();
  b.weight_gradient = dweight.data_ptr();
  b.scratch = scratch.data_ptr();
  require_launched("RMSNorm backward", kernels->backward(sizes, b, depth_queue(x.device())));
  return {dx, dweight};
}

struct NormRows : torch::autograd::Function<NormRows> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight, double eps) {
    const Forward result(x, Tensor(), weight, eps);
    context->save_for_backward({x, weight, result.rho});
    context->saved_data["eps"] = eps;
    return result.normed;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto [dx, dweight] =
        gradients_of(context->get_saved_variables(), context->saved_data["eps"].toDouble(), gradients[0], Tensor());
    return {dx, dweight, Tensor()};
  }
};

struct AddNorm : torch::autograd::Function<AddNorm> {
  static variable_list forward(AutogradContext* context, const Tensor& stream, const Tensor& output,
                               const Tensor& weight, double eps) {
    context->set_materialize_grads(false);  // after the last sublayer nothing but the norm reads the sum
    const Forward result(stream, output, weight, eps);
    context->save_for_backward({result.sum, weight, result.rho});
    context->saved_data["eps"] = eps;
    return {result.sum, result.normed};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (!gradients[0].defined() && !gradients[1].defined()) return variable_list(4);
    const auto [dx, dweight] =
        gradients_of(context->get_saved_variables(), context->saved_data["eps"].toDouble(), gradients[1], gradients[0]);
    return {dx, dx, dweight, Tensor()};
  }
};

}  // namespace

NormedSum add_rms_norm(const Tensor& stream, const Tensor& output, const Tensor& weight, double eps) {
  require_shape("add_rms_norm", "output", output, {stream.size(0), stream.size(1)});
  require_shape("add_rms_norm", "weight", weight, {stream.size(1)});
  if (!kernels_for(stream, eps)) {
    const Tensor sum = stream + output;
    return {sum, rms_norm(sum, weight, eps)};
  }
  const auto result = AddNorm::apply(stream.contiguous(), output.contiguous(), weight, eps);
  return {result[0], result[1]};
}

Tensor rms_norm_rows(const Tensor& x, const Tensor& weight, double eps) {
  require_shape("rms_norm_rows", "weight", weight, {x.size(1)});
  return kernels_for(x, eps) ? NormRows::apply(x.contiguous(), weight, eps) : rms_norm(x, weight, eps);
}

}  // namespace mhar::ops
