#include "ops/token_loss.h"

#include <torch/torch.h>

#include <algorithm>

#include "kernels/head_loss/head_loss.h"
#include "ops/place.h"
#include "ops/pointwise.h"
#include "ops/precision.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Rows of one chunk: `logits` become their gradient where the call is differentiable.
struct Rows {
  Tensor logits;         // [rows, V], storage type
  Tensor targets;        // [rows]
  Tensor loss, squares;  // [rows], compute type: written; squares undefined without z-loss
};

// Eq. 23 for types without kernels. The true class's p - 1 is formed in the compute type and only then rounded:
// rounding p first loses it when p is near 1.
void composed(const Rows& rows, const TokenLossOptions& options) {
  const Tensor x = rows.logits.to(compute_type(rows.logits));  // the same memory where the types agree
  const Tensor lse = x.logsumexp(1, /*keepdim=*/true), counted = rows.targets.ge(0).unsqueeze(1);
  const Tensor place = rows.targets.clamp_min(0).unsqueeze(1), ignored = counted.logical_not().squeeze(1);
  rows.loss.copy_((lse - x.gather(1, place)).squeeze(1).masked_fill(ignored, 0));
  if (rows.squares.defined()) rows.squares.copy_(lse.square().squeeze(1).masked_fill(ignored, 0));
  if (!options.differentiable) return;
  x.sub_(lse).exp_();
  if (options.z_loss != 0) x.mul_(lse.mul(2 * options.z_loss).add_(1));
  x.scatter_add_(1, place, at::full({1, 1}, -1.0, x.options()).expand({x.size(0), 1}));
  x.mul_(counted.to(x.scalar_type()).mul_(options.weight));
  if (options.scale.defined()) x.mul_(options.scale);
  if (!x.is_same(rows.logits)) rows.logits.copy_(x);
}

kernels::HeadLossSizes sizes_of(const Tensor& logits) {
  return {logits.size(0), logits.size(1), element_of(logits.scalar_type())};
}

const kernels::HeadLossKernels* kernels_for(const Tensor& logits) {
  return pointwise_kernels("the loss", logits.device(), kernels::head_loss_kernels_cpu(),
                           kernels::head_loss_kernels_cuda(), sizes_of(logits));
}

void evaluate(const kernels::HeadLossKernels* kernels, const Rows& rows, const TokenLossOptions& options) {
  if (!kernels) return composed(rows, options);
  const kernels::HeadLoss loss{.logits = rows.logits.data_ptr(),
                               .targets = rows.targets.const_data_ptr<int64_t>(),
                               .loss = rows.loss.data_ptr<float>(),
                               .squares = rows.squares.defined() ? rows.squares.data_ptr<float>() : nullptr,
                               .gradient = options.differentiable,
                               .weight = options.weight,
                               .z_loss = options.z_loss,
                               .scale = options.scale.defined() ? options.scale.const_data_ptr<float>() : nullptr};
  require_launched("token_loss", kernels->run(sizes_of(rows.logits), loss, depth_queue(rows.logits.device())));
}

/// Tokens of a chunk: as few chunks as fit, of one length, whole tiles of a GEMM.
int64_t chunk_rows(const Tensor& hidden, const Tensor& head, int64_t bytes) {
  constexpr int64_t kTile = 128;
  const int64_t tokens = hidden.size(0), row = head.size(0) * static_cast<int64_t>(hidden.element_size());
  if (tokens * row > bytes) bytes = std::max(bytes / 2, bytes - head.numel() * 4);
  const int64_t most = std::clamp<int64_t>(bytes / row, 1, std::max<int64_t>(tokens, 1));
  const int64_t chunks = (tokens + most - 1) / most, even = chunks > 0 ? (tokens + chunks - 1) / chunks : 1;
  return std::min(most, (even + kTile - 1) / kTile * kTile);
}

/// The head's gradient over chunks, left in `result`. A single one is a GEMM into the storage type; sums of several in
/// bf16 would lose what later ones add.
class HeadGradient {
 public:
  HeadGradient(const Tensor& result, bool whole)
      : result_(result),
        sum_(whole ? result : at::empty(result.sizes(), result.options().dtype(compute_type(result)))) {}

  void add(const Tensor& gradient, const Tensor& x) {
    const Tensor turned = gradient.t();
    const bool first = std::exchange(empty_, false), widens = sum_.scalar_type() != x.scalar_type();
    if (widens && x.is_cuda()) {
      first ? at::mm_out(sum_, turned, x, at::kFloat) : at::addmm_out(sum_, sum_, turned, x, at::kFloat);
    } else if (widens) {
      first ? sum_.copy_(turned.mm(x)) : sum_.add_(turned.mm(x));
    } else {
      first ? at::mm_out(sum_, turned, x) : at::addmm_out(sum_, sum_, turned, x);
    }
  }
  void finish() {
    if (empty_) sum_.zero_();
    if (!sum_.is_same(result_)) result_.copy_(sum_);
  }

 private:
  Tensor result_, sum_;
  bool empty_ = true;
};

struct HeadAndLoss : torch::autograd::Function<HeadAndLoss> {
  static variable_list forward(AutogradContext* context, const Tensor& hidden, const Tensor& head,
                               const Tensor& all_targets, const TokenLossOptions& options) {
    const int64_t tokens = hidden.size(0), most = chunk_rows(hidden, head, options.logit_bytes);
    const Tensor targets = all_targets.contiguous(), buffer = at::empty({most, head.size(0)}, hidden.options());
    const Tensor losses = at::empty({tokens}, hidden.options().dtype(compute_type(hidden)));
    const Tensor squares = options.z_loss != 0 ? at::empty_like(losses) : Tensor();
    const auto* kernels = kernels_for(buffer);
    // Nothing is lost in a place that no gradient has been written to yet.
    const bool in_place =
        options.starts_backward && options.head_place.defined() && head.requires_grad() && !head.grad().defined();
    Tensor dhidden, dhead;
    std::optional<HeadGradient> sum_of_chunks;
    if (options.differentiable) {
      dhidden = at::empty_like(hidden);
      dhead = in_place ? options.head_place : at::empty_like(head);
      claim(dhead);
      sum_of_chunks.emplace(dhead, tokens <= most);
    }
    for (int64_t begin = 0; begin < tokens; begin += most) {
      const int64_t end = std::min(tokens, begin + most);
      const auto part = [&](const Tensor& all) { return all.defined() ? all.slice(0, begin, end) : all; };
      const Tensor x = part(hidden);
      Tensor logits = buffer.slice(0, 0, end - begin);
      at::mm_out(logits, x, head.t());
      evaluate(kernels, {logits, part(targets), part(losses), part(squares)}, options);
      if (!options.differentiable) continue;
      Tensor place = part(dhidden);
      at::mm_out(place, logits, head);
      sum_of_chunks->add(logits, x);
    }
    if (options.differentiable) {
      sum_of_chunks->finish();
      context->save_for_backward({dhidden, dhead, head});
      context->saved_data["in place"] = in_place;
    }
    context->saved_data["as they are"] = options.starts_backward;
    Tensor sum = losses.sum(), objective = squares.defined() ? sum.add(squares.sum(), options.z_loss) : sum.clone();
    objective.mul_(options.weight);
    if (options.scale.defined()) objective.mul_(options.scale);
    context->mark_non_differentiable({sum});
    return {objective, sum};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (saved.empty()) {
      throw std::logic_error("token_loss: backward was asked for, but the call was not differentiable");
    }
    if (context->saved_data["in place"].toBool()) {
      saved[2].mutable_grad() = saved[1];
      return {saved[0], Tensor(), Tensor(), Tensor()};
    }
    if (context->saved_data["as they are"].toBool()) return {saved[0], saved[1], Tensor(), Tensor()};
    const auto scaled = [&](const Tensor& t) { return t.mul(gradients[0].to(t.scalar_type())); };
    return {scaled(saved[0]), scaled(saved[1]), Tensor(), Tensor()};
  }
};

}  // namespace

TokenLoss token_loss(const Tensor& hidden, const Tensor& head, const Tensor& targets, const TokenLossOptions& options) {
  require_shape("token_loss", "head", head, {head.size(0), hidden.size(1)});
  require_shape("token_loss", "targets", targets, {hidden.size(0)});
  if (options.head_place.defined()) require_shape("token_loss", "head_place", options.head_place, head.sizes());
  const auto result = HeadAndLoss::apply(hidden, head, targets, options);
  return {result[0], result[1]};
}

}  // namespace mhar::ops
