#include "ops/token_loss.h"

#include <torch/torch.h>

#include <algorithm>

#include "ops/precision.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Chunk {
  Tensor logits, lse, counted, targets;
};

Chunk evaluate(const Tensor& hidden, const Tensor& head, const Tensor& targets) {
  Chunk chunk;
  chunk.logits = hidden.mm(head.t()).to(compute_type(hidden));
  chunk.lse = chunk.logits.logsumexp(1, /*keepdim=*/true);
  chunk.counted = targets.ge(0).unsqueeze(1);
  chunk.targets = targets.clamp_min(0).unsqueeze(1);
  return chunk;
}

Tensor loss_sum(const Chunk& chunk) {
  return (chunk.lse - chunk.logits.gather(1, chunk.targets)).masked_fill(chunk.counted.logical_not(), 0).sum();
}

// Eq. 23: gradient of the objective by the logits, in place of them. The true class's p - 1 is formed in the compute
// type and only then rounded: rounding p first loses it when p is near 1.
Tensor logit_gradient(Chunk& chunk, double weight, double z_loss, at::ScalarType storage) {
  Tensor p = chunk.logits.sub_(chunk.lse).exp_();
  if (z_loss != 0) p.mul_(chunk.lse.mul(2 * z_loss).add_(1));
  p.scatter_add_(1, chunk.targets, at::full({1, 1}, -1.0, p.options()).expand({p.size(0), 1}));
  return p.mul_(chunk.counted.to(p.scalar_type()).mul_(weight)).to(storage);
}

struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static variable_list forward(AutogradContext* context, const Tensor& hidden, const Tensor& head,
                               const Tensor& targets, const TokenLossOptions& options) {
    const auto [weight, z_loss, differentiable, logit_elements] = options;
    const int64_t tokens = hidden.size(0);
    const int64_t rows = std::max<int64_t>(1, logit_elements / head.size(0));
    const auto type = compute_type(hidden);
    Tensor sum = at::zeros({}, hidden.options().dtype(type)), squares = at::zeros_like(sum);
    Tensor dhidden, dhead;
    if (differentiable) {
      dhidden = at::empty_like(hidden);
      dhead = tokens > 0 && tokens <= rows ? Tensor() : at::zeros(head.sizes(), head.options().dtype(type));
    }
    for (int64_t begin = 0; begin < tokens; begin += rows) {
      const int64_t end = std::min(tokens, begin + rows);
      const Tensor x = hidden.slice(0, begin, end);
      Chunk chunk = evaluate(x, head, targets.slice(0, begin, end));
      sum.add_(loss_sum(chunk));
      if (z_loss != 0) squares.add_(chunk.lse.square().masked_fill(chunk.counted.logical_not(), 0).sum());
      if (!differentiable) continue;
      const Tensor gradient = logit_gradient(chunk, weight, z_loss, hidden.scalar_type());
      Tensor place = dhidden.slice(0, begin, end);
      at::mm_out(place, gradient, head);
      const Tensor part = gradient.t().mm(x);
      dhead = dhead.defined() ? dhead.add_(part) : part;
    }
    if (differentiable) context->save_for_backward({dhidden, dhead.to(head.scalar_type())});
    context->mark_non_differentiable({sum});
    return {sum.add(squares, z_loss).mul_(weight), sum};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    if (saved.empty()) {
      throw std::logic_error("token_loss: backward was asked for, but the call was not differentiable");
    }
    const auto scaled = [&](const Tensor& t) { return t.mul(gradients[0].to(t.scalar_type())); };
    return {scaled(saved[0]), scaled(saved[1]), Tensor(), Tensor()};
  }
};

}  // namespace

TokenLoss token_loss(const Tensor& hidden, const Tensor& head, const Tensor& targets, const TokenLossOptions& options) {
  require_shape("token_loss", "head", head, {head.size(0), hidden.size(1)});
  require_shape("token_loss", "targets", targets, {hidden.size(0)});
  const auto result = HeadLoss::apply(hidden, head, targets, options);
  return {result[0], result[1]};
}

}  // namespace mhar::ops
