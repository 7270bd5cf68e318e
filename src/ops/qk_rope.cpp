#include "ops/qk_rope.h"

#include <torch/torch.h>

#include "kernels/qk_rope/qk_rope.h"
#include "ops/pointwise.h"
#include "ops/rms_norm.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

kernels::QkRopeSizes sizes_of(const Tensor& projection, const HeadLayout& l, double eps) {
  return {l.batch * l.tokens, l.heads, l.kv_heads, l.head_dim, l.tokens, element_of(projection.scalar_type()), eps};
}

const kernels::QkRopeKernels* kernels_for(const Tensor& projection, const kernels::QkRopeSizes& sizes) {
  return pointwise_kernels("query and key preparation", projection.device(), kernels::qk_rope_kernels_cpu(),
                           kernels::qk_rope_kernels_cuda(), sizes);
}

// Heads of their own tensors [B, T, n or G, k]; neither is written through a const pointer of a kernel's input.
kernels::QkHeads heads_in(const HeadLayout& l, const Tensor& query, const Tensor& key) {
  return {query.mutable_data_ptr(), key.mutable_data_ptr(), l.heads * l.head_dim, l.kv_heads * l.head_dim};
}

struct QkRope : torch::autograd::Function<QkRope> {
  // `weights`: of queries and keys, or none; autograd takes no undefined inputs.
  static variable_list forward(AutogradContext* context, const Tensor& projection, at::TensorList weights,
                               const RotaryTable& rows, const HeadLayout& l, double eps) {
    const auto sizes = sizes_of(projection, l, eps);
    const bool normed = !weights.empty();
    const Tensor query = at::empty({l.batch, l.tokens, l.heads, l.head_dim}, projection.options());
    const Tensor key = at::empty({l.batch, l.tokens, l.kv_heads, l.head_dim}, projection.options());
    const Tensor rho =
        at::empty({normed ? sizes.rows * (l.heads + l.kv_heads) : 0}, projection.options().dtype(at::kFloat));
    kernels::QkRopeForward f{packed_heads(sizes, projection.mutable_data_ptr()), heads_in(l, query, key)};
    if (normed) f.query_weight = weights[0].const_data_ptr(), f.key_weight = weights[1].const_data_ptr();
    f.cosine = rows.cosine.const_data_ptr<float>(), f.sine = rows.sine.const_data_ptr<float>();
    f.rho = rho.data_ptr<float>();
    require_launched("query and key preparation forward",
                     kernels_for(projection, sizes)->forward(sizes, f, depth_queue(projection.device())));
    context->set_materialize_grads(false);
    variable_list saved{rows.cosine, rows.sine};
    if (normed) saved.insert(saved.end(), {projection, rho, weights[0], weights[1]});
    context->save_for_backward(saved);
    context->saved_data["layout"] = std::vector<int64_t>{l.batch, l.tokens, l.heads, l.kv_heads, l.head_dim};
    context->saved_data["eps"] = eps;
    context->saved_data["type"] = projection.scalar_type();
    // Not a view in the eyes of autograd: what it gets comes back through this node and not beside it.
    const int64_t turned = (l.heads + l.kv_heads) * l.head_dim, row = projection.size(1);
    Tensor value = at::empty({0}, projection.options());
    value.set_(projection.storage(), projection.storage_offset() + turned, key.sizes(),
               {l.tokens * row, row, l.head_dim, 1});
    return {query, key, value};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    require_no_second_derivative("query and key preparation");
    const auto saved = context->get_saved_variables();
    const auto numbers = context->saved_data["layout"].toIntVector();
    const HeadLayout l{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
    const bool normed = saved.size() > 2;
    const auto options = saved[0].options().dtype(context->saved_data["type"].toScalarType());
    const auto whole = [&](const Tensor& gradient, int64_t heads) {
      return gradient.defined() ? gradient.contiguous() : at::zeros({l.batch, l.tokens, heads, l.head_dim}, options);
    };
    const Tensor dquery = whole(gradients[0], l.heads), dkey = whole(gradients[1], l.kv_heads);
    const int64_t turned = (l.heads + l.kv_heads) * l.head_dim, rest = l.kv_heads * l.head_dim;
    const Tensor result = at::empty({l.batch * l.tokens, turned + rest}, options);
    const auto sizes = sizes_of(result, l, context->saved_data["eps"].toDouble());
    const auto* kernels = kernels_for(result, sizes);
    kernels::QkRopeBackward b{
        .gradient = heads_in(l, dquery, dkey), .input = {}, .result = packed_heads(sizes, result.data_ptr())};
    b.cosine = saved[0].const_data_ptr<float>(), b.sine = saved[1].const_data_ptr<float>();
    Tensor scratch;
    variable_list all{result};
    if (normed) {
      const Tensor &projection = saved[2], &rho = saved[3], &query_weight = saved[4], &key_weight = saved[5];
      scratch = at::empty({kernels->scratch_bytes(sizes)}, options.dtype(at::kByte));
      all.push_back(at::empty_like(query_weight)), all.push_back(at::empty_like(key_weight));
      b.input = packed_heads(sizes, projection.mutable_data_ptr());
      b.query_weight = query_weight.const_data_ptr(), b.key_weight = key_weight.const_data_ptr();
      b.rho = rho.const_data_ptr<float>(), b.scratch = scratch.data_ptr();
      b.query_weight_gradient = all[1].data_ptr(), b.key_weight_gradient = all[2].data_ptr();
    }
    require_launched("query and key preparation backward", kernels->backward(sizes, b, depth_queue(result.device())));
    const Tensor place = result.narrow(1, turned, rest).view({l.batch, l.tokens, l.kv_heads, l.head_dim});
    gradients[2].defined() ? place.copy_(gradients[2]) : place.zero_();
    all.resize(all.size() + 3);
    return all;
  }
};

Heads composed(const Tensor& projection, const HeadLayout& l, const HeadNorms& norms, const RotaryTable& table,
               int64_t first) {
  const auto parts = projection.view({l.batch, l.tokens, -1, l.head_dim})
                         .split_with_sizes({l.heads, l.kv_heads, l.kv_heads}, /*dim=*/2);
  const auto prepared = [&](const Tensor& x, const Tensor& weight) {
    return rotate(weight.defined() ? rms_norm(x, weight, norms.eps) : x, table, first);
  };
  return {prepared(parts[0], norms.query), prepared(parts[1], norms.key), parts[2]};
}

}  // namespace

Heads qk_rope(const Tensor& projection, const HeadLayout& l, const HeadNorms& norms, const RotaryTable& table,
              int64_t first) {
  require_shape("qk_rope", "projection", projection, {l.batch * l.tokens, (l.heads + 2 * l.kv_heads) * l.head_dim});
  if (norms.query.defined()) {
    require_shape("qk_rope", "query norm", norms.query, {l.head_dim});
    require_shape("qk_rope", "key norm", norms.key, {l.head_dim});
  }
  if (!kernels_for(projection, sizes_of(projection, l, norms.eps))) {
    return composed(projection, l, norms, table, first);
  }
  variable_list weights;
  if (norms.query.defined()) weights = {norms.query, norms.key};
  const RotaryTable rows{table.cosine.narrow(0, first, l.tokens), table.sine.narrow(0, first, l.tokens)};
  const auto heads = QkRope::apply(projection.contiguous(), at::TensorList(weights), rows, l, norms.eps);
  return {heads[0], heads[1], heads[2]};
}

}  // namespace mhar::ops
