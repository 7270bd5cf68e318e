#include "ops/token_loss.h"

#include <fmt/format.h>

#include "ops/helpers.h"
#include "reference/cross_entropy.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

struct Outcome {
  Tensor objective, sum, dhidden, dhead;
};

Outcome run(const Tensor& hidden, const Tensor& head, const Tensor& targets, const TokenLossOptions& options) {
  const Tensor x = hidden.detach().clone().requires_grad_(), w = head.detach().clone().requires_grad_();
  const TokenLoss loss = token_loss(x, w, targets, options);
  EXPECT_FALSE(loss.sum.requires_grad());
  loss.objective.backward();
  return {loss.objective.detach(), loss.sum, x.grad(), w.grad()};
}

Tensor ids(std::vector<int64_t> all) { return at::tensor(all, at::kLong); }

// One row per token, so that dhead's column is the logits' gradient: hidden [P, 1], head [V, 1].
Tensor column(std::vector<double> all, at::ScalarType type) {
  return at::tensor(all, at::kDouble).to(type).view({-1, 1});
}

TEST(TokenLoss, FollowsTheReference) {
  for (const at::Device device : devices()) {
    for (const auto type : {at::kDouble, at::kFloat}) {
      for (const double z : {0.0, 1e-2}) {
        SCOPED_TRACE(fmt::format("z {} {} {}", z, c10::toString(type), device.str()));
        const Tensor x = normal({6, 5}, 1, type), w = normal({11, 5}, 2, type, 2.0);
        const Tensor targets = ids({3, -1, 0, 10, -100, 7});
        const Outcome got = run(x.to(device), w.to(device), targets.to(device), {.weight = 0.25, .z_loss = z});
        const Tensor logits = x.to(at::kDouble).mm(w.to(at::kDouble).t());
        const auto exact = reference::cross_entropy<double>({6, 11, reference::Reduction::mean, z},
                                                            values<double>(logits), values<int64_t>(targets));
        ASSERT_EQ(exact.counted, 4);
        const double tolerance = type == at::kDouble ? 1e-13 : 1e-6;
        EXPECT_NEAR(got.objective.item<double>(), exact.loss + exact.z_loss, 4 * tolerance);
        EXPECT_NEAR(got.sum.item<double>(), 4 * exact.loss, 16 * tolerance)
            << "the reported loss is without the z-loss";
        const Tensor dlogits = at::tensor(exact.gradient, at::kDouble).view({6, 11});
        expect_close("dhidden", got.dhidden, values<double>(dlogits.mm(w.to(at::kDouble))), tolerance);
        expect_close("dhead", got.dhead, values<double>(dlogits.t().mm(x.to(at::kDouble))), tolerance);
      }
    }
  }
}

TEST(TokenLoss, TheHeadsGradientIsWrittenToItsPlace) {
  for (const at::Device device : devices()) {
    for (const int64_t bytes : {int64_t{1} << 30, int64_t{4} * 11 * 2}) {  // one chunk, and several
      const Tensor x = normal({6, 5}, 1, at::kFloat).to(device), w = normal({11, 5}, 2, at::kFloat).to(device);
      const Tensor targets = ids({3, -1, 0, 10, -100, 7}).to(device);
      const Outcome plain = run(x, w, targets, {.weight = 0.25, .logit_bytes = bytes});
      const Tensor head = w.clone().requires_grad_(), place = at::full_like(w, NAN);
      const TokenLossOptions options{
          .weight = 0.25, .starts_backward = true, .logit_bytes = bytes, .head_place = place};
      const auto backward = [&] {
        token_loss(x.clone().requires_grad_(), head, targets, options).objective.backward();
      };
      backward();
      EXPECT_EQ(head.grad().data_ptr(), place.data_ptr());
      EXPECT_TRUE(at::equal(place, plain.dhead));
      backward();  // where a gradient lies already, the next is added
      EXPECT_TRUE(at::equal(place, 2 * plain.dhead));
      const Tensor frozen = w.clone();
      token_loss(x.clone().requires_grad_(), frozen, targets, options).objective.backward();
      EXPECT_FALSE(frozen.grad().defined());
      EXPECT_TRUE(at::equal(place, 2 * plain.dhead));
    }
  }
}

// Case 43: also with P not a multiple of the chunk, and smaller than one.
TEST(TokenLoss, ChunksDoNotMatter) {
  const Tensor x = normal({37, 8}, 1, at::kFloat), w = normal({100, 8}, 2, at::kFloat);
  Tensor targets = at::arange(37, at::kLong).mul(7).remainder(100);
  targets[5] = -1;
  const TokenLossOptions whole{.weight = 1.0 / 36, .z_loss = 1e-3};
  const Outcome one = run(x, w, targets, whole);
  for (const int64_t rows : {0, 1, 8, 36, 37, 1000}) {
    TokenLossOptions options = whole;
    options.logit_bytes = (rows * 100 + 1) * 4;
    const Outcome other = run(x, w, targets, options);
    EXPECT_TRUE(at::allclose(one.objective, other.objective, 1e-6, 0)) << rows;
    EXPECT_TRUE(at::allclose(one.sum, other.sum, 1e-6, 0)) << rows;
    EXPECT_TRUE(at::allclose(one.dhidden, other.dhidden, 0, 1e-7)) << rows;
    EXPECT_TRUE(at::allclose(one.dhead, other.dhead, 0, 1e-7)) << rows;
    if (rows >= 37) {
      EXPECT_TRUE(at::equal(one.dhead, other.dhead)) << rows;
    }
  }
}

// Case 41: the true class's p - 1 keeps its digits where p is close to 1.
TEST(TokenLoss, TheGradientDoesNotCancel) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    std::vector<double> logits(1024);
    logits[17] = 13.8373;
    const Tensor head = column(logits, type);
    const Outcome got = run(column({1.0}, type), head, ids({17}), {});
    const double others = 1023, rounded = head[17].item<double>(), exact = -others / (std::exp(rounded) + others);
    if (type == at::kFloat) {
      EXPECT_NEAR(exact, -0.001, 1e-5);
    }
    EXPECT_NEAR(got.dhead[17].item<double>() / exact, 1.0, 0.01) << c10::toString(type);
  }
}

// Case 42: nothing of the loss is rounded to bf16 (11.9375, 3.3125).
TEST(TokenLoss, TheLossIsNotRounded) {
  const TokenLoss zero = token_loss(at::zeros({4, 2}, at::kBFloat16), at::zeros({151936, 2}, at::kBFloat16),
                                    ids({0, 1, 151935, 7}), {.weight = 0.25, .differentiable = false});
  EXPECT_EQ(zero.sum.scalar_type(), at::kFloat);
  EXPECT_NEAR(zero.sum.item<double>() / 4, 11.931215, 2e-6);
  EXPECT_NEAR(zero.objective.item<double>(), 11.931215, 2e-6);

  // Logits (x, 0) give the loss log(1 + e^-x).
  const auto logit = [](double loss) { return -std::log(std::expm1(loss)); };
  const Tensor hidden = column({logit(3.287), logit(3.336)}, at::kFloat);
  const TokenLoss mean = token_loss(hidden, column({1, 0}, at::kFloat), ids({0, 0}), {.weight = 0.5});
  EXPECT_NEAR(mean.sum.item<double>() / 2, 3.3115, 1e-6);
  EXPECT_NEAR(mean.objective.item<double>(), 3.3115, 1e-6);
  const Tensor narrow = hidden.to(at::kBFloat16);
  const double exact = narrow.to(at::kDouble).neg().exp().log1p().sum().item<double>();
  EXPECT_NEAR(token_loss(narrow, column({1, 0}, at::kBFloat16), ids({0, 0}), {}).sum.item<double>(), exact, 1e-6);
}

// Case 51's ignored half, and an empty batch (case 28).
TEST(TokenLoss, NothingCountedIsZero) {
  for (const int64_t tokens : {0, 3}) {
    for (const double z : {0.0, 1e-2}) {
      const Outcome got = run(normal({tokens, 4}, 1, at::kBFloat16), normal({9, 4}, 2, at::kBFloat16),
                              at::full({tokens}, -1, at::kLong), {.z_loss = z});
      EXPECT_EQ(got.sum.item<double>(), 0.0);
      EXPECT_EQ(got.objective.item<double>(), 0.0);
      EXPECT_TRUE(at::equal(got.dhidden, at::zeros({tokens, 4}, at::kBFloat16)));
      EXPECT_TRUE(at::equal(got.dhead, at::zeros({9, 4}, at::kBFloat16)));
    }
  }
}

// Case 52's weights half: one token of loss 2 and three of loss 1 are 1.25, not 1.5.
TEST(TokenLoss, MicrobatchesWeighByTheirTokens) {
  const auto logit = [](double loss) { return -std::log(std::expm1(loss)); };
  const Tensor a = column({logit(2)}, at::kFloat), b = column({logit(1), logit(1), logit(1)}, at::kFloat),
               w = column({1, 0}, at::kFloat);
  const Outcome one = run(a, w, ids({0}), {.weight = 0.25}), three = run(b, w, ids({0, 0, 0}), {.weight = 0.25});
  EXPECT_NEAR(one.objective.item<double>() + three.objective.item<double>(), 1.25, 1e-6);
  const Outcome all = run(at::cat({a, b}), w, ids({0, 0, 0, 0}), {.weight = 0.25});
  EXPECT_TRUE(at::allclose(one.dhead + three.dhead, all.dhead, 0, 1e-6));
  EXPECT_TRUE(at::allclose(at::cat({one.dhidden, three.dhidden}), all.dhidden, 0, 1e-6));
}

TEST(TokenLoss, WrongUsesAreRefused) {
  const Tensor x = at::zeros({3, 4}), w = at::zeros({9, 4});
  const auto head = message_of<std::invalid_argument>([&] { token_loss(x, at::zeros({9, 5}), ids({0, 0, 0}), {}); });
  EXPECT_NE(head.find("[9, 5]"), std::string::npos) << head;
  const auto targets = message_of<std::invalid_argument>([&] { token_loss(x, w, ids({0}), {}); });
  EXPECT_NE(targets.find("targets"), std::string::npos) << targets;
  const Tensor leaf = x.clone().requires_grad_();
  const TokenLoss loss = token_loss(leaf, w, ids({0, 0, 0}), {.differentiable = false});
  EXPECT_NE(message_of<std::logic_error>([&] { loss.objective.backward(); }).find("not differentiable"),
            std::string::npos);
}

}  // namespace
}  // namespace mhar::ops
