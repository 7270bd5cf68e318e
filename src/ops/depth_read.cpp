#include "ops/depth_read.h"

#include <torch/torch.h>

#include "ops/precision.h"
#include "ops/rms_norm.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor by_head(const Tensor& x, int64_t heads) { return x.view({x.size(0), heads, x.size(1) / heads}); }

struct DepthRead : torch::autograd::Function<DepthRead> {
  // `rho` is a std::vector on purpose: autograd treats it as a constant (its gradient is part of the sources').
  static Tensor forward(AutogradContext* context, at::TensorList values, const Tensor& key,
                        const std::vector<Tensor>& rho, int64_t heads) {
    const DepthMix read = depth_mix(values, rho, key, heads);
    variable_list saved(values.begin(), values.end());
    saved.insert(saved.end(), {key, read.logits, read.weights});
    context->save_for_backward(saved);
    context->saved_data["heads"] = heads;
    context->saved_data["rho"] = rho;
    return read.mix;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const auto rho = context->saved_data["rho"].toTensorVector();
    const size_t count = rho.size();
    const at::TensorList values = at::TensorList(saved).slice(0, count);
    const DepthMix read{{}, saved[count + 1], saved[count + 2]};
    auto result = depth_mix_backward(values, rho, saved[count], context->saved_data["heads"].toInt(), read,
                                     gradients[0].contiguous());
    variable_list all = std::move(result.values);
    all.insert(all.end(), {result.key, Tensor(), Tensor()});
    return all;
  }
};

std::vector<Tensor> values_of(const std::vector<DepthSource>& sources) {
  std::vector<Tensor> values;
  values.reserve(sources.size());
  for (const auto& source : sources) values.push_back(source.value);
  return values;
}

std::vector<Tensor> rho_of(const std::vector<DepthSource>& sources) {
  std::vector<Tensor> rho;
  rho.reserve(sources.size());
  for (const auto& source : sources) rho.push_back(source.inverse_rms);
  return rho;
}

void check(const std::vector<DepthSource>& sources, const Tensor& key, int64_t heads) {
  if (sources.empty()) {
    throw std::invalid_argument(
        describe({"depth_read", "sources", "at least one", "none", "start with the embedding"}));
  }
  const int64_t width = sources[0].value.size(-1);
  if (heads < 1 || width % heads != 0) {
    throw std::invalid_argument(describe({"depth_read", "heads", "a divisor of the width " + std::to_string(width),
                                          std::to_string(heads), "choose another number of routing heads"}));
  }
  require_shape("depth_read", "key", key, {width});
  for (const auto& source : sources) require_shape("depth_read", "source", source.value, sources[0].value.sizes());
}

}  // namespace

DepthMix depth_mix(at::TensorList values, const std::vector<Tensor>& rho, const Tensor& key, int64_t heads) {
  const Tensor matrix = head_matrix(key, heads);
  const auto type = matrix.scalar_type();
  const int64_t tokens = values[0].size(0);
  DepthMix read;
  read.logits = at::empty({static_cast<int64_t>(values.size()), tokens, heads}, matrix.options());
  for (size_t i = 0; i < values.size(); ++i) {
    Tensor place = read.logits[i];
    at::mul_out(place, values[i].to(type).mm(matrix), rho[i]);
  }
  read.weights = read.logits.softmax(0);
  read.mix = at::zeros(values[0].sizes(), matrix.options());
  for (size_t i = 0; i < values.size(); ++i) {
    by_head(read.mix, heads).addcmul_(by_head(values[i].to(type), heads), read.weights[i].unsqueeze(-1));
  }
  return read;
}

DepthMixGradients depth_mix_backward(at::TensorList values, const std::vector<Tensor>& rho, const Tensor& key,
                                     int64_t heads, const DepthMix& read, const Tensor& dmix) {
  const Tensor matrix = head_matrix(key, heads), transposed = matrix.t();
  const auto type = matrix.scalar_type();
  const double width = static_cast<double>(key.size(0));
  const Tensor& weights = read.weights;
  Tensor dweights = at::empty_like(weights);
  for (size_t i = 0; i < values.size(); ++i) {
    Tensor one = dweights[i];
    at::sum_out(one, by_head(at::mul(dmix, values[i].to(type)), heads), {-1});
  }
  // Eq. 5, with delta as sum_i pi_i (dO . s_i): the mix need not be kept.
  const Tensor delta = at::mul(weights, dweights).sum(0, /*keepdim=*/true);
  const Tensor da = (dweights - delta).mul_(weights);

  // Eq. 6 and 7.
  DepthMixGradients result;
  Tensor spread = at::zeros_like(matrix);
  for (size_t i = 0; i < values.size(); ++i) {
    const Tensor value = values[i].to(type), da_rho = da[i].mul(rho[i]);
    Tensor ds = by_head(dmix, heads).mul(weights[i].unsqueeze(-1)).view_as(dmix);
    ds.addmm_(da_rho, transposed);
    const Tensor norm = at::mul(da[i], read.logits[i]).sum(-1, /*keepdim=*/true).mul_(rho[i].square()).div_(width);
    ds.addcmul_(value, norm, -1);
    spread.addmm_(value.t(), da_rho);
    result.values.push_back(ds.to(values[i].scalar_type()));
  }
  result.key = spread.mul_(head_matrix(at::ones_like(key), heads)).sum(1);
  return result;
}

Tensor head_matrix(const Tensor& key, int64_t heads) {
  const int64_t channels = key.size(0) / heads;
  const Tensor mask = at::eye(heads, key.options()).repeat_interleave(channels, 0);
  return mask.mul_(key.unsqueeze(1));
}

DepthSource depth_source(const Tensor& stored, double eps) {
  // The statistic of the contiguous copy: summed in one order whatever the layout of `stored`.
  const Tensor value = stored.to(compute_type(stored)).contiguous();
  return {value, inverse_rms(value, eps)};
}

Tensor depth_key(const Tensor& query, const Tensor& gain) {
  const auto type = compute_type(query);
  return query.reshape({-1}).to(type) * gain.to(type);
}

Tensor depth_read(const std::vector<DepthSource>& sources, const Tensor& key, int64_t heads) {
  check(sources, key, heads);
  // A softmax over one source is 1 whatever the logit: the mix is the source to the last bit, and so is its gradient.
  if (sources.size() == 1) return sources[0].value;
  return DepthRead::apply(at::TensorList(values_of(sources)), key, rho_of(sources), heads);
}

Tensor depth_weights(const std::vector<DepthSource>& sources, const Tensor& key, int64_t heads) {
  check(sources, key, heads);
  at::NoGradGuard no_gradient;
  return depth_mix(values_of(sources), rho_of(sources), key.detach(), heads).weights;
}

}  // namespace mhar::ops
