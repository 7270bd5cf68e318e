// mhar::depth_read: one site over a list of separate tensors, of tensor operations, nothing stacked.
#include <torch/library.h>
#include <torch/torch.h>

#include "operators/checks.h"
#include "operators/find.h"
#include "ops/depth_read.h"
#include "ops/precision.h"
#include "ops/rms_norm.h"

namespace mhar::operators {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Site {
  std::vector<Tensor> rho;
  Tensor key;
};

Site site_of(at::TensorList sources, const Tensor& query, const Tensor& gain, int64_t heads, double eps) {
  check_site(sources, query, gain, heads);
  Site site{{}, ops::depth_key(query, gain)};
  for (const Tensor& source : sources) site.rho.push_back(ops::inverse_rms(source, eps));
  return site;
}

// Output and the mix o before the norm, both in the storage type; one tensor's clone where there is no norm.
std::tuple<Tensor, Tensor> forward(at::TensorList sources, const Tensor& query, const Tensor& gain, int64_t heads,
                                   double eps, const OptionalTensor& output_gain) {
  const Site site = site_of(sources, query, gain, heads, eps);
  // One source is its own mix to the last bit.
  Tensor mix = sources.size() == 1
                   ? sources[0].clone(at::MemoryFormat::Contiguous)
                   : ops::depth_mix(sources, site.rho, site.key, heads).mix.to(sources[0].scalar_type());
  Tensor output = output_gain ? ops::rms_norm(mix, *output_gain, eps) : mix.clone();
  return {output, mix};
}

// Gradients of the sources, then of query, gain and output gain (empty where there is none).
std::tuple<std::vector<Tensor>, Tensor, Tensor, Tensor> backward(const Tensor& gradient, at::TensorList sources,
                                                                 const Tensor& query, const Tensor& gain,
                                                                 const Tensor& mix, int64_t heads, double eps,
                                                                 const OptionalTensor& output_gain) {
  const Site site = site_of(sources, query, gain, heads, eps);
  const auto wide = ops::compute_type(query), type = sources[0].scalar_type();
  Tensor dmix = gradient.contiguous(), doutput = at::empty({0}, gain.options());
  if (output_gain) std::tie(dmix, doutput) = ops::rms_norm_backward(mix, *output_gain, eps, dmix);
  if (sources.size() == 1) return {{dmix.to(type, false, true)}, at::zeros_like(query), at::zeros_like(gain), doutput};
  const auto read = ops::depth_mix(sources, site.rho, site.key, heads);
  auto result = ops::depth_mix_backward(sources, site.rho, site.key, heads, read, dmix.to(wide));
  const Tensor dq = result.key.mul(gain.to(wide)).view_as(query).to(query.scalar_type());
  const Tensor dg = result.key.mul(query.reshape({-1}).to(wide)).to(gain.scalar_type());
  return {std::move(result.values), dq, dg, doutput};
}

std::tuple<Tensor, Tensor> forward_meta(at::TensorList sources, const Tensor&, const Tensor&, int64_t, double,
                                        const OptionalTensor&) {
  const Tensor& like = sources[0];
  return {at::empty_symint(like.sym_sizes(), like.options()), at::empty_symint(like.sym_sizes(), like.options())};
}

std::tuple<std::vector<Tensor>, Tensor, Tensor, Tensor> backward_meta(const Tensor&, at::TensorList sources,
                                                                      const Tensor& query, const Tensor& gain,
                                                                      const Tensor&, int64_t, double,
                                                                      const OptionalTensor& output_gain) {
  std::vector<Tensor> all;
  for (const Tensor& s : sources) all.push_back(at::empty_symint(s.sym_sizes(), s.options()));
  return {all, at::empty_like(query), at::empty_like(gain),
          output_gain ? at::empty_like(*output_gain) : at::empty({0}, gain.options())};
}

const auto& forward_operator() {
  static const auto op = find<decltype(forward)>("mhar::depth_read_forward");
  return op;
}

struct DepthRead : torch::autograd::Function<DepthRead> {
  static Tensor forward(torch::autograd::AutogradContext* context, at::TensorList sources, const Tensor& query,
                        const Tensor& gain, int64_t heads, double eps, const OptionalTensor& output_gain) {
    at::AutoDispatchBelowADInplaceOrView below;
    const auto [output, mix] = forward_operator().call(sources, query, gain, heads, eps, output_gain);
    std::vector<Tensor> saved(sources.begin(), sources.end());
    saved.insert(saved.end(), {query, gain, mix, output_gain.value_or(Tensor())});
    context->save_for_backward(saved);
    context->saved_data["heads"] = heads;
    context->saved_data["eps"] = eps;
    return output;
  }

  static std::vector<Tensor> backward(torch::autograd::AutogradContext* context, std::vector<Tensor> gradients) {
    auto saved = context->get_saved_variables();
    const size_t count = saved.size() - 4;
    const at::TensorList sources = at::TensorList(saved).slice(0, count);
    const bool normed = saved[count + 3].defined();
    static const auto op = find<decltype(operators::backward)>("mhar::depth_read_backward");
    auto [dsources, dquery, dgain, doutput] = op.call(
        gradients[0], sources, saved[count], saved[count + 1], saved[count + 2], context->saved_data["heads"].toInt(),
        context->saved_data["eps"].toDouble(), normed ? OptionalTensor(saved[count + 3]) : std::nullopt);
    std::vector<Tensor> result = std::move(dsources);
    result.insert(result.end(), {dquery, dgain, Tensor(), Tensor(), normed ? doutput : Tensor()});
    return result;
  }
};

Tensor differentiable(at::TensorList sources, const Tensor& query, const Tensor& gain, int64_t heads, double eps,
                      const OptionalTensor& output_gain) {
  return DepthRead::apply(sources, query, gain, heads, eps, output_gain);
}

Tensor plain(at::TensorList sources, const Tensor& query, const Tensor& gain, int64_t heads, double eps,
             const OptionalTensor& output_gain) {
  return std::get<0>(forward_operator().call(sources, query, gain, heads, eps, output_gain));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(mhar, m) {
  m.def(
      "depth_read(Tensor[] sources, Tensor query, Tensor gain, int heads, float eps=1e-06, Tensor? output_gain=None) "
      "-> "
      "Tensor");
  m.def(
      "depth_read_forward(Tensor[] sources, Tensor query, Tensor gain, int heads, float eps, Tensor? output_gain) -> "
      "(Tensor, Tensor)");
  m.def(
      "depth_read_backward(Tensor gradient, Tensor[] sources, Tensor query, Tensor gain, Tensor mix, int heads, float "
      "eps, Tensor? output_gain) -> (Tensor[], Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(mhar, CompositeExplicitAutograd, m) {
  m.impl("depth_read", plain);
  m.impl("depth_read_forward", forward);
  m.impl("depth_read_backward", backward);
}
TORCH_LIBRARY_IMPL(mhar, Autograd, m) { m.impl("depth_read", differentiable); }
TORCH_LIBRARY_IMPL(mhar, Meta, m) {
  m.impl("depth_read_forward", forward_meta);
  m.impl("depth_read_backward", backward_meta);
}

}  // namespace mhar::operators
