// RMSNorm, rotary positions and attention against the reference's loops.
#include <fmt/format.h>

#include "ops/attention.h"
#include "ops/helpers.h"
#include "ops/rms_norm.h"
#include "reference/attention.h"
#include "reference/rms_norm.h"
#include "reference/rotary.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kBFloat16};

template <typename T>
std::vector<std::vector<T>> norm_loops(const reference::RmsNormSizes& sizes, const Tensor& x, const Tensor& w,
                                       const Tensor& dy) {
  const auto xs = values<T>(x), ws = values<T>(w), dys = values<T>(dy);
  const auto norm = reference::rms_norm<T>(sizes, xs, ws);
  const auto gradients = reference::rms_norm_backward<T>(sizes, xs, ws, norm, dys);
  return {norm.output, gradients.x, gradients.weight};
}

TEST(RmsNorm, FollowsTheReference) {
  for (const at::Device device : devices()) {
    for (const auto type : kTypes) {
      for (const reference::RmsNormSizes sizes :
           {reference::RmsNormSizes{0, 8}, {1, 8}, {7, 123}, {33, 1000, 0.25}, {64, 40}}) {
        SCOPED_TRACE(fmt::format("{} x {} {} {}", sizes.rows, sizes.width, c10::toString(type), device.str()));
        const Tensor x = normal({sizes.rows, sizes.width}, 1, type, 3.0),
                     dy = normal({sizes.rows, sizes.width}, 3, type);
        const Tensor w = normal({sizes.width}, 2, at::kDouble, 0.3).add(1).to(type);
        const Tensor leaf = x.to(device).detach().clone().requires_grad_(),
                     gain = w.to(device).detach().clone().requires_grad_();
        const Tensor y = rms_norm(leaf, gain, sizes.eps);
        y.backward(dy.to(device));
        const auto exact = norm_loops<double>(sizes, x, w, dy);
        const auto loops = norm_loops<float>(sizes, x, w, dy);
        const Tensor got[] = {y, leaf.grad(), gain.grad()};
        for (int i = 0; i < 3; ++i) {
          SCOPED_TRACE(i);
          if (type == at::kDouble) expect_close("fp64", got[i], exact[i], 1e-12);
          Measured rule;
          if (type != at::kDouble) rule.add(got[i], loops[i], exact[i], type);
          rule.expect("rule");
        }
      }
    }
  }
}

TEST(RmsNorm, RoundsTheNormalisedValueFirstAsHuggingFaceDoes) {
  const Tensor x = normal({33, 1000}, 1, at::kBFloat16), w = normal({1000}, 2, at::kBFloat16);
  const Tensor wide = x.to(at::kFloat),
               normalised = (wide * at::rsqrt(wide.square().mean(-1, true) + 1e-6)).to(at::kBFloat16);
  EXPECT_TRUE(at::equal(rms_norm(x, w, 1e-6), normalised * w));
}

// Case 67: one statistic per head, not over the whole vector.
TEST(RmsNorm, RunsOverEachHead) {
  const Tensor q = at::tensor({1., 1., 1., 1., 10., 10., 10., 10.}).to(at::kFloat).view({1, 2, 4});
  EXPECT_TRUE(at::allclose(rms_norm(q, at::ones({4}), 1e-6), at::ones({1, 2, 4}), 0, 1e-6));
}

TEST(RmsNorm, OtherWidthsAreRefused) {
  const auto message = message_of<std::invalid_argument>([] { rms_norm(at::zeros({2, 8}), at::zeros({6}), 1e-6); });
  EXPECT_NE(message.find("[8]"), std::string::npos) << message;
  EXPECT_NE(message.find("[6]"), std::string::npos) << message;
}

// Case 56.
TEST(RmsNorm, UpstreamGradientsOfAnyLayout) {
  for (const Tensor& dy : awkward_views({7, 40}, at::kFloat)) {
    Tensor gradients[2][2];
    for (int i = 0; i < 2; ++i) {
      const Tensor x = normal({7, 40}, 1, at::kFloat).requires_grad_(),
                   w = normal({40}, 2, at::kFloat).requires_grad_();
      rms_norm(x, w, 1e-6).backward(i == 0 ? dy : dy.contiguous().clone());
      gradients[i][0] = x.grad(), gradients[i][1] = w.grad();
    }
    EXPECT_TRUE(at::equal(gradients[0][0], gradients[1][0]));
    EXPECT_TRUE(at::equal(gradients[0][1], gradients[1][1]));
  }
}

TEST(Rotate, FollowsTheReference) {
  for (const auto type : kTypes) {
    const reference::RotarySizes sizes{2, 37, 3, 16};
    const Tensor x = normal({2, 37, 3, 16}, 1, type), dy = normal({2, 37, 3, 16}, 2, type);
    const Tensor leaf = x.detach().clone().requires_grad_();
    const auto frequencies = reference::inverse_frequencies<double>(16, 1e4);
    const RotaryTable table = rotary_table(at::tensor(frequencies, at::kDouble), 50, type, at::kCPU);
    const Tensor y = rotate(leaf, table, 0);
    y.backward(dy);
    EXPECT_EQ(y.scalar_type(), type);
    const auto forward = reference::rotate<double>(sizes, frequencies, values<double>(x), reference::Turn::forward);
    const auto backward = reference::rotate<double>(sizes, frequencies, values<double>(dy), reference::Turn::backward);
    const double tolerance = type == at::kDouble ? 1e-14 : type == at::kFloat ? 2e-7 : 4e-3;
    expect_close("y", y, forward, tolerance);
    expect_close("dx", leaf.grad(), backward, tolerance);
    // A later start: the rows of the same table from there on.
    EXPECT_TRUE(at::equal(rotate(x.slice(1, 30, 37), table, 30), y.slice(1, 30, 37)));
  }
}

struct Loops {
  std::vector<double> output, q, k, v;
};

Loops attention_loops(const reference::AttentionSizes& sizes, const Tensor& q, const Tensor& k, const Tensor& v,
                      const Tensor& dO) {
  const auto qs = values<double>(q), ks = values<double>(k), vs = values<double>(v), dOs = values<double>(dO);
  const auto forward = reference::attention<double>(sizes, qs, ks, vs);
  auto gradients = reference::attention_backward<double>(sizes, qs, ks, vs, forward, dOs);
  return {forward.output, gradients.q, gradients.k, gradients.v};
}

void check_attention(const reference::AttentionSizes& s, at::ScalarType type, at::Device device, double relative) {
  SCOPED_TRACE(fmt::format("B {} T {} n {} g {} d {} {} {}", s.batch, s.length, s.heads, s.kv_heads, s.head_dim,
                           c10::toString(type), device.str()));
  const Tensor q = normal({s.batch, s.length, s.heads, s.head_dim}, 1, type), dO = normal(q.sizes(), 4, type);
  const Tensor k = normal({s.batch, s.length, s.kv_heads, s.head_dim}, 2, type), v = normal(k.sizes(), 3, type);
  const auto leaf = [&](const Tensor& t) { return t.to(device).detach().clone().requires_grad_(); };
  const Tensor leaves[] = {leaf(q), leaf(k), leaf(v)};
  const Tensor y = attention(leaves[0], leaves[1], leaves[2]);
  ASSERT_EQ(y.sizes(), at::IntArrayRef({s.batch, s.length, s.heads * s.head_dim}));
  y.backward(dO.view(y.sizes()).to(device));
  const Loops exact = attention_loops(s, q, k, v, dO);
  const std::pair<Tensor, std::vector<double>> all[] = {
      {y, exact.output}, {leaves[0].grad(), exact.q}, {leaves[1].grad(), exact.k}, {leaves[2].grad(), exact.v}};
  for (const auto& [got, right] : all) {
    EXPECT_LE(relative_distance(got, right), relative);
  }
}

TEST(Attention, FollowsTheReferenceInFp64) {
  for (const reference::AttentionSizes sizes :
       {reference::AttentionSizes{2, 5, 4, 2, 8}, {1, 1, 2, 1, 16}, {3, 33, 6, 6, 10}}) {
    check_attention(sizes, at::kDouble, at::kCPU, 1e-12);
  }
}

// Case 58.
TEST(Attention, EveryHeadDimension) {
  for (const at::Device device : devices()) {
    for (const int64_t dim : {64, 80, 96, 128, 160}) {
      for (const auto type : {at::kFloat, at::kBFloat16}) {
        const double relative = type == at::kFloat ? 1e-5 : 1e-2;
        check_attention({1, 1, 4, 2, dim}, type, device, relative);
        check_attention({1, 77, 4, 2, dim}, type, device, relative);
      }
      check_attention({1, 1024, 1, 1, dim}, at::kBFloat16, device, 1e-2);
      const std::string kernel = attention_kernel(device, at::kBFloat16, 16, 8, dim, 1024);
      EXPECT_TRUE(kernel == "flash" || kernel == "efficient" || kernel == "cudnn" || kernel == "math") << kernel;
    }
  }
}

TEST(Attention, OneQuerySeesEveryKey) {
  // The last row of the causal form, as generation computes it from cached keys.
  const Tensor q = normal({2, 9, 4, 8}, 1), k = normal({2, 9, 2, 8}, 2), v = normal({2, 9, 2, 8}, 3);
  EXPECT_TRUE(at::allclose(attention(q.slice(1, 8), k, v), attention(q, k, v).slice(1, 8), 0, 1e-14));
}

// Case 56.
TEST(Attention, UpstreamGradientsOfAnyLayout) {
  for (const Tensor& dy : awkward_views({2, 9, 32}, at::kFloat)) {
    Tensor gradients[2][3];
    for (int i = 0; i < 2; ++i) {
      const Tensor q = normal({2, 9, 4, 8}, 1, at::kFloat).requires_grad_(),
                   k = normal({2, 9, 2, 8}, 2, at::kFloat).requires_grad_();
      const Tensor v = normal({2, 9, 2, 8}, 3, at::kFloat).requires_grad_();
      attention(q, k, v).backward(i == 0 ? dy : dy.contiguous().clone());
      gradients[i][0] = q.grad(), gradients[i][1] = k.grad(), gradients[i][2] = v.grad();
    }
    for (int j = 0; j < 3; ++j) EXPECT_TRUE(at::equal(gradients[0][j], gradients[1][j])) << j;
  }
}

}  // namespace
}  // namespace mhar::ops
