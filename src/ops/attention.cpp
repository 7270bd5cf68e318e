#include "ops/attention.h"

#include <torch/torch.h>

#include "ops/cudnn_attention.h"
#include "ops/precision.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor rotated(const Tensor& x, const Tensor& cosine, const Tensor& sine) {
  const int64_t half = x.size(-1) / 2;
  const Tensor a = x.slice(-1, 0, half), b = x.slice(-1, half);
  Tensor out = at::empty(x.sizes(), cosine.options());
  Tensor first = out.slice(-1, 0, half), second = out.slice(-1, half);
  at::mul_out(first, a, cosine).addcmul_(b.to(cosine.scalar_type()), sine, -1);
  at::mul_out(second, b, cosine).addcmul_(a.to(cosine.scalar_type()), sine);
  return out.to(x.scalar_type());
}

// A rotation's gradient is the rotation back, so only the table is kept.
struct Rotate : torch::autograd::Function<Rotate> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& cosine, const Tensor& sine) {
    context->save_for_backward({cosine, sine});
    return rotated(x, cosine, sine);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    return {rotated(gradients[0], saved[0], saved[1].neg()), Tensor(), Tensor()};
  }
};

}  // namespace

RotaryTable rotary_table(const Tensor& inverse_frequencies, int64_t length, at::ScalarType storage, at::Device device) {
  const Tensor angles = at::outer(at::arange(length, at::kDouble), inverse_frequencies.to(at::kDouble));
  const auto type = compute_type(storage);
  return {angles.cos().to(device, type), angles.sin().to(device, type)};
}

Tensor rotate(const Tensor& x, const RotaryTable& table, int64_t first) {
  const int64_t tokens = x.size(1);
  const auto rows = [&](const Tensor& t) { return t.slice(0, first, first + tokens).unsqueeze(1); };
  return Rotate::apply(x, rows(table.cosine), rows(table.sine));
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  const int64_t batch = query.size(0), tokens = query.size(1);
  if (const Tensor fast = cudnn_attention(query, key, value); fast.defined()) return fast.view({batch, tokens, -1});
  const Tensor mixed =
      at::scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), {},
                                       /*dropout_p=*/0.0, /*is_causal=*/tokens > 1, c10::nullopt,
                                       /*enable_gqa=*/query.size(2) != key.size(2));
  return mixed.transpose(1, 2).reshape({batch, tokens, -1});
}

std::string attention_kernel(at::Device device, at::ScalarType storage, int64_t heads, int64_t kv_heads,
                             int64_t head_dim, int64_t sequence) {
  if (device.is_cuda() && cudnn_attention_refuses(device, storage, heads, kv_heads, head_dim, sequence).empty()) {
    return at::globalContext().deterministicAlgorithms() ? "cudnn, deterministic" : "cudnn";
  }
  at::AutoGradMode gradient(true);
  const auto options = at::TensorOptions().device(device).dtype(storage);
  const Tensor q = at::empty({1, heads, sequence, head_dim}, options).requires_grad_();
  const Tensor k = at::empty({1, kv_heads, sequence, head_dim}, options).requires_grad_();
  switch (at::_fused_sdp_choice(q, k, k, {}, 0.0, /*is_causal=*/sequence > 1, c10::nullopt, heads != kv_heads)) {
    case 1:
      return "flash";
    case 2:
      return "efficient";
    case 3:
      return "cudnn";
    default:
      return "math";
  }
}

}  // namespace mhar::ops
