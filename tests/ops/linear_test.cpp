// Several weights as one GEMM, and gradients written where they belong.
#include "ops/linear.h"

#include "ops/helpers.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

constexpr int64_t kRows[] = {6, 4, 4};
constexpr int64_t kWidth = 8;

// Three leaves in one buffer, with a gap behind the first where asked for; the gradients' places likewise.
struct Weights {
  Tensor buffer, gradients;
  std::vector<LinearWeight> all;

  explicit Weights(int64_t gap, bool places = false)
      : buffer(normal({(14 + gap) * kWidth}, 1, at::kFloat)), gradients(at::full_like(buffer, NAN)) {
    int64_t from = 0;
    for (const int64_t rows : kRows) {
      const auto part = [&](const Tensor& of) { return of.narrow(0, from, rows * kWidth).view({rows, kWidth}); };
      all.push_back({part(buffer).detach().requires_grad_(), places ? part(gradients) : Tensor()});
      from += (rows + (from == 0 ? gap : 0)) * kWidth;
    }
  }
  Tensor copied() const { return at::cat({all[0].value, all[1].value, all[2].value}).detach(); }
};

TEST(Linear, NeighboursAreOneMatrixWithoutACopy) {
  for (const int64_t gap : {0, 1}) {
    const Weights weights(gap);
    const Tensor joined = joined_rows({weights.all[0].value, weights.all[1].value, weights.all[2].value});
    EXPECT_EQ(joined.data_ptr() == weights.buffer.data_ptr(), gap == 0);
    EXPECT_TRUE(at::equal(joined, weights.copied()));
  }
}

TEST(Linear, FollowsAtLinear) {
  for (const int64_t gap : {0, 1}) {
    const Weights weights(gap);
    const Tensor x = normal({5, kWidth}, 2, at::kFloat).requires_grad_(), slot = at::empty({5, 14});
    const Tensor plain = x.detach().clone().requires_grad_(), whole = weights.copied().requires_grad_();
    const Tensor dy = normal({5, 14}, 3, at::kFloat), y = linear(x, weights.all, slot);
    EXPECT_EQ(y.data_ptr(), slot.data_ptr());
    const Tensor expected = at::linear(plain, whole);
    EXPECT_TRUE(at::allclose(y, expected, 0, 1e-5));
    y.backward(dy);
    expected.backward(dy);
    EXPECT_TRUE(at::allclose(x.grad(), plain.grad(), 0, 1e-5));
    int64_t from = 0;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(at::allclose(weights.all[i].value.grad(), whole.grad().narrow(0, from, kRows[i]), 0, 1e-5)) << i;
      from += kRows[i];
    }
  }
}

TEST(Linear, GradientsAreWrittenAndThenAdded) {
  for (const int64_t gap : {0, 1}) {
    const Weights weights(gap, /*places=*/true);
    const Tensor x = normal({5, kWidth}, 2, at::kFloat), dy = normal({5, 14}, 3, at::kFloat);
    for (const double times : {1.0, 2.0, 3.0}) {
      if (times == 3.0) {  // one of the gradients was taken away: it starts again, the others go on
        weights.all[1].value.mutable_grad().reset();
        weights.all[1].place.fill_(NAN);
      }
      linear(x, weights.all).backward(dy);
      int64_t from = 0;
      for (size_t i = 0; i < 3; ++i) {
        const auto& [value, place] = weights.all[i];
        EXPECT_EQ(value.grad().data_ptr(), place.data_ptr());
        const Tensor once = dy.narrow(1, from, kRows[i]).t().mm(x);
        EXPECT_TRUE(at::allclose(place, once * (times == 3.0 && i == 1 ? 1.0 : times), 0, 1e-5)) << i;
        from += kRows[i];
      }
    }
  }
}

TEST(Linear, FrozenWeightsGetNone) {
  const Weights weights(0, /*places=*/true);
  for (const LinearWeight& one : weights.all) one.value.requires_grad_(false);
  const Tensor x = normal({5, kWidth}, 2, at::kFloat).requires_grad_();
  linear(x, weights.all).sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(weights.all[0].value.grad().defined());
  EXPECT_TRUE(weights.gradients.isnan().all().item<bool>());
}

TEST(Linear, TheOthersOfAFrozenWeightLearn) {
  for (const bool places : {true, false}) {
    for (const size_t frozen : {0u, 1u, 2u}) {
      const Weights weights(0, places);
      weights.all[frozen].value.requires_grad_(false);
      const Tensor x = normal({5, kWidth}, 2, at::kFloat), dy = normal({5, 14}, 3, at::kFloat);
      linear(x, weights.all).backward(dy);
      int64_t from = 0;
      for (size_t i = 0; i < 3; ++i) {
        const Tensor& gradient = weights.all[i].value.grad();
        EXPECT_EQ(gradient.defined(), i != frozen) << i;
        if (gradient.defined()) {
          EXPECT_TRUE(at::allclose(gradient, dy.narrow(1, from, kRows[i]).t().mm(x), 0, 1e-5)) << i;
        }
        from += kRows[i];
      }
    }
  }
}

TEST(Linear, OtherShapesAreRefused) {
  const Weights weights(0);
  const auto refused = [](const std::function<void()>& call, const char* wanted) {
    const auto message = message_of<std::invalid_argument>(call);
    EXPECT_NE(message.find(wanted), std::string::npos) << message;
  };
  refused([&] { linear(at::zeros({5, 7}), weights.all); }, "weight");
  refused([&] { linear(at::zeros({5, 8}), {{weights.all[0].value, at::zeros({6, 7})}}); }, "place");
  refused([&] { linear(at::zeros({5, 8}), weights.all, at::zeros({5, 13})); }, "slot");
}

}  // namespace
}  // namespace mhar::ops
