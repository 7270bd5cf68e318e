// The operations over the pointwise kernels against their composed form: fp64 is what is right, and the composed form
// in the storage type is what the kernels have to match by the tolerance rule.
#include <fmt/format.h>

#include <functional>

#include "ops/add_norm.h"
#include "ops/helpers.h"
#include "ops/linear.h"
#include "ops/qk_rope.h"
#include "ops/rms_norm.h"
#include "ops/swiglu.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;
using Tensors = std::vector<Tensor>;
using Operation = std::function<Tensors(const Tensors&)>;

constexpr at::ScalarType kServed[] = {at::kFloat, at::kBFloat16};

// Results, then the gradient of each input for upstream gradients drawn from a seed; `skip`: a result without one.
Tensors run(const Operation& operation, const Tensors& inputs, at::Device device, at::ScalarType type, int skip) {
  Tensors leaves;
  for (const Tensor& one : inputs) leaves.push_back(one.to(device, type).detach().clone().requires_grad_());
  Tensors all = operation(leaves), used, upstream;
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i) == skip) continue;
    used.push_back(all[i]);
    upstream.push_back(normal(all[i].sizes(), 50 + i, inputs[0].scalar_type()).to(device, type));
  }
  torch::autograd::backward(used, upstream);
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf));
  return all;
}

// `inputs` have the storage type.
void expect_like_composed(const Operation& fused, const Operation& composed, const Tensors& inputs, int skip = -1) {
  const auto type = inputs[0].scalar_type();
  for (const at::Device device : devices()) {
    SCOPED_TRACE(fmt::format("{} {} without {}", device.str(), c10::toString(type), skip));
    const Tensors got = run(fused, inputs, device, type, skip), loops = run(composed, inputs, device, type, skip);
    const Tensors exact = run(composed, inputs, at::kCPU, at::kDouble, skip);
    for (size_t i = 0; i < exact.size(); ++i) {
      Measured rule;
      ASSERT_EQ(got[i].scalar_type(), type);
      rule.add(got[i], values<float>(loops[i]), values<double>(exact[i]), type);
      rule.expect("number " + std::to_string(i));
    }
  }
}

TEST(AddNorm, FollowsTheComposedForm) {
  const Operation fused = [](const Tensors& x) {
    const auto [sum, normed] = add_rms_norm(x[0], x[1], x[2], 1e-6);
    return Tensors{sum, normed};
  };
  const Operation composed = [](const Tensors& x) {
    const Tensor sum = x[0] + x[1];
    return Tensors{sum, rms_norm(sum, x[2], 1e-6)};
  };
  for (const auto type : kServed) {
    for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{0, 8}, {1, 8}, {33, 123}, {70, 512}}) {
      const Tensors inputs{normal({rows, width}, 1, type, 3), normal({rows, width}, 2, type),
                           normal({width}, 3, at::kDouble, 0.3).add(1).to(type)};
      for (const int skip : {-1, 0}) expect_like_composed(fused, composed, inputs, skip);
    }
  }
}

TEST(AddNorm, TheSumAloneHasItsGradient) {
  const Tensor x = normal({7, 40}, 1, at::kFloat).requires_grad_(), y = normal({7, 40}, 2, at::kFloat).requires_grad_();
  const Tensor w = at::ones({40}).requires_grad_(), dsum = normal({7, 40}, 3, at::kFloat);
  add_rms_norm(x, y, w, 1e-6).sum.backward(dsum);
  EXPECT_TRUE(at::equal(x.grad(), dsum));
  EXPECT_TRUE(at::equal(y.grad(), dsum));
  EXPECT_TRUE(at::equal(w.grad(), at::zeros({40})));
}

TEST(NormRows, FollowsTheComposedForm) {
  for (const auto type : kServed) {
    expect_like_composed([](const Tensors& x) { return Tensors{rms_norm_rows(x[0], x[1], 1e-6)}; },
                         [](const Tensors& x) { return Tensors{rms_norm(x[0], x[1], 1e-6)}; },
                         {normal({33, 123}, 1, type, 3), normal({123}, 3, at::kDouble, 0.3).add(1).to(type)});
  }
}

TEST(SwigluLinear, FollowsTheComposedForm) {
  const Operation fused = [](const Tensors& x) { return Tensors{swiglu_linear(x[0], {x[1], {}})}; };
  const Operation composed = [](const Tensors& x) {
    const auto halves = x[0].chunk(2, 1);
    return Tensors{at::linear(at::silu(halves[0]) * halves[1], x[1])};
  };
  for (const auto type : kServed) {
    for (const auto& [rows, inner] : {std::pair<int64_t, int64_t>{0, 8}, {1, 8}, {33, 123}, {70, 384}}) {
      expect_like_composed(fused, composed, {normal({rows, 2 * inner}, 1, type, 2), normal({24, inner}, 2, type)});
    }
  }
}

TEST(SwigluLinear, WritesIntoASlot) {
  for (const auto type : {at::kDouble, at::kFloat}) {
    const Tensor gate_up = normal({7, 16}, 1, type), down = normal({5, 8}, 2, type);
    const Tensor slot = at::empty({7, 5}, type);
    const Tensor result = swiglu_linear(gate_up, {down, {}}, slot);
    EXPECT_EQ(result.data_ptr(), slot.data_ptr());
    EXPECT_TRUE(at::equal(slot, swiglu_linear(gate_up, {down, {}})));
  }
}

const HeadLayout kLayout{2, 5, 4, 2, 16};

Operation prepared(const HeadLayout& layout, bool normed, bool composed) {
  return [=](const Tensors& x) {
    const auto frequencies = at::pow(1e4, at::arange(layout.head_dim / 2, at::kDouble).mul(-2.0 / layout.head_dim));
    const RotaryTable table = rotary_table(frequencies, 40, x[0].scalar_type(), x[0].device());
    if (!composed) {
      HeadNorms norms;
      if (normed) norms = {x[1], x[2], 1e-6};
      const Heads heads = qk_rope(x[0], layout, norms, table, 30);
      return Tensors{heads.query, heads.key, heads.value};
    }
    const auto parts = x[0].view({layout.batch, layout.tokens, -1, layout.head_dim})
                           .split_with_sizes({layout.heads, layout.kv_heads, layout.kv_heads}, 2);
    const auto one = [&](const Tensor& head, const Tensor& weight) {
      return rotate(normed ? rms_norm(head, weight, 1e-6) : head, table, 30);
    };
    return Tensors{one(parts[0], normed ? x[1] : Tensor()), one(parts[1], normed ? x[2] : Tensor()), parts[2]};
  };
}

TEST(QkRope, FollowsTheComposedForm) {
  for (const auto type : kServed) {
    for (const int64_t head_dim : {6, 16, 80}) {
      for (const bool normed : {true, false}) {
        const HeadLayout layout{2, 5, 4, 2, head_dim};
        Tensors inputs{normal({10, 8 * head_dim}, 1, type, 3)};
        if (normed) {
          for (const int seed : {2, 3}) inputs.push_back(normal({head_dim}, seed, at::kDouble, 0.3).add(1).to(type));
        }
        for (const int skip : {-1, 0, 1, 2}) {
          expect_like_composed(prepared(layout, normed, false), prepared(layout, normed, true), inputs, skip);
        }
      }
    }
  }
}

TEST(QkRope, NoTokens) {
  const Heads heads =
      qk_rope(at::zeros({0, 8 * 16}), {1, 0, 4, 2, 16}, {}, rotary_table(at::ones({8}), 4, at::kFloat, at::kCPU), 0);
  EXPECT_EQ(heads.query.sizes(), at::IntArrayRef({1, 0, 4, 16}));
  EXPECT_EQ(heads.value.sizes(), at::IntArrayRef({1, 0, 2, 16}));
}

// Case 56.
TEST(Pointwise, UpstreamGradientsOfAnyLayout) {
  const Tensors inputs{normal({10, 8 * 16}, 1, at::kFloat)};
  for (size_t view = 0; view < 2; ++view) {
    Tensor gradients[3][2];
    for (const bool plain : {false, true}) {
      const auto upstream = [&](at::IntArrayRef shape) {
        const Tensor dy = awkward_views(shape, at::kFloat)[view];
        return plain ? dy.contiguous().clone() : dy;
      };
      const Tensor x = normal({10, 8 * 16}, 1, at::kFloat).requires_grad_();
      for (const Tensor& head : prepared(kLayout, false, false)({x})) head.backward(upstream(head.sizes()), true);
      gradients[0][plain] = x.grad();
      const Tensor row = normal({7, 40}, 2, at::kFloat).requires_grad_(), weight = at::ones({40}).requires_grad_();
      const auto [sum, normed] = add_rms_norm(row, row, weight, 1e-6);
      torch::autograd::backward({sum, normed}, {upstream({7, 40}), upstream({7, 40})});
      gradients[1][plain] = row.grad();
      const Tensor gates = normal({7, 16}, 3, at::kFloat).requires_grad_();
      swiglu_linear(gates, {normal({5, 8}, 4, at::kFloat), {}}).backward(upstream({7, 5}));
      gradients[2][plain] = gates.grad();
    }
    for (const auto& pair : gradients) EXPECT_TRUE(at::allclose(pair[0], pair[1], 1e-6, 1e-6));
  }
}

TEST(Pointwise, OtherShapesAreRefused) {
  const auto refused = [](const std::function<void()>& call, const char* wanted) {
    const auto message = message_of<std::invalid_argument>(call);
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  };
  const Tensor x = at::zeros({3, 8});
  refused([&] { add_rms_norm(x, at::zeros({2, 8}), at::zeros({8}), 1e-6); }, "output");
  refused([&] { add_rms_norm(x, x, at::zeros({7}), 1e-6); }, "weight");
  refused([&] { rms_norm_rows(x, at::zeros({7}), 1e-6); }, "weight");
  refused([&] { swiglu_linear(x, {at::zeros({5, 3}), {}}); }, "gate_up");
  refused([&] { swiglu_linear(x, {at::zeros({5, 4}), {}}, at::zeros({3, 4})); }, "slot");
  refused([&] { qk_rope(x, kLayout, {}, {}, 0); }, "projection");
  refused([&] { qk_rope(at::zeros({10, 128}), kLayout, {at::zeros({15}), at::zeros({16})}, {}, 0); }, "query norm");
  refused([&] { qk_rope(at::zeros({10, 128}), kLayout, {at::zeros({16}), at::zeros({15})}, {}, 0); }, "key norm");
}

TEST(Pointwise, GradientsHaveNoGradient) {
  const Tensor x = normal({3, 8}, 1, at::kFloat).requires_grad_(), w = at::ones({8}).requires_grad_();
  const auto message = message_of<std::logic_error>(
      [&] { torch::autograd::grad({rms_norm_rows(x, w, 1e-6).sum()}, {x}, {}, true, /*create_graph=*/true); });
  EXPECT_NE(message.find("fp64"), std::string::npos) << message;
}

}  // namespace
}  // namespace mhar::ops
