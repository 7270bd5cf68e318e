#include "ops/embedding.h"

#include <gmock/gmock.h>

#include "ops/helpers.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

struct Table {
  Tensor value, place;
  explicit Table(at::ScalarType type, at::Device device = at::kCPU)
      : value(normal({9, 5}, 1).to(device, type).requires_grad_()) {
    place = at::full({9, 5}, 77.0, value.options().requires_grad(false));
  }
};

Tensor ids() { return at::tensor({3, 0, 3, 8, 3, 1}, at::kLong); }

class EmbeddingOp : public ::testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(Types, EmbeddingOp, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& i) { return c10::toString(i.param); });

TEST_P(EmbeddingOp, WritesTheGradientThatAutogradGives) {
  const Table table(GetParam()), plain(GetParam());
  const Tensor dy = normal({6, 5}, 2).to(GetParam());
  const Tensor rows = embedding({table.value, table.place}, ids()), expected = embedding({plain.value, {}}, ids());
  EXPECT_TRUE(at::equal(rows, expected));
  rows.backward(dy), expected.backward(dy);
  EXPECT_EQ(table.value.grad().data_ptr(), table.place.data_ptr());
  EXPECT_TRUE(at::equal(table.place, plain.value.grad()));
  // A second pass adds, as it does to what a tied head left there.
  embedding({table.value, table.place}, ids()).backward(dy);
  embedding({plain.value, {}}, ids()).backward(dy);
  EXPECT_TRUE(at::equal(table.place, plain.value.grad()));
}

// Sums of fp64 on the CPU are the truth: other devices have kernels of their own.
TEST_P(EmbeddingOp, FollowsTheCpu) {
  for (const at::Device device : devices()) {
    const Table table(GetParam(), device);
    const Tensor dy = normal({6, 5}, 2).to(GetParam()), start = normal({9, 5}, 3).to(GetParam());
    table.place.copy_(start);
    table.value.mutable_grad() = table.place;  // as a tied head leaves it
    embedding({table.value, table.place}, ids().to(device)).backward(dy.to(device));
    const Tensor exact = start.to(at::kDouble).index_add(0, ids(), dy.to(at::kDouble));
    EXPECT_LE(relative_distance(table.place, values<double>(exact)), GetParam() == at::kBFloat16 ? 4e-3 : 1e-6);
  }
}

TEST(EmbeddingOp, MayBeDifferentiatedTwice) {
  const Table table(at::kDouble);
  const Tensor dy = normal({6, 5}, 2).requires_grad_();
  const auto once = torch::autograd::grad({embedding({table.value, table.place}, ids())}, {table.value}, {dy},
                                          /*retain_graph=*/true, /*create_graph=*/true);
  EXPECT_TRUE(at::equal(torch::autograd::grad({once[0].square().sum()}, {dy})[0], 2 * once[0].detach().index({ids()})));
}

TEST(EmbeddingOp, NamesTheArgument) {
  const Table table(at::kFloat);
  const auto message = [&](const LinearWeight& weight, const Tensor& at) {
    return message_of<std::invalid_argument>([&] { embedding(weight, at); });
  };
  EXPECT_THAT(message({table.value, at::zeros({9, 4})}, ids()), ::testing::HasSubstr("place"));
  EXPECT_THAT(message({table.value, {}}, ids().view({2, 3})), ::testing::HasSubstr("ids"));
}

}  // namespace
}  // namespace mhar::ops
