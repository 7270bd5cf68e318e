// The field's cases for the depth read, and laws that need no reference.
#include "ops/depth_read.h"
#include "ops/helpers.h"
#include "ops/rms_norm.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

Tensor row(std::vector<double> all, at::ScalarType type = at::kDouble) {
  return at::tensor(all, at::kDouble).to(type).view({1, -1}).requires_grad_();
}

std::vector<DepthSource> taken(const std::vector<Tensor>& stored) {
  std::vector<DepthSource> sources;
  for (const Tensor& s : stored) sources.push_back(depth_source(s, 1e-6));
  return sources;
}

TEST(DepthReadCases, WorkedGradients) {
  const std::vector<Tensor> s{row({1, 2, -1, 0.5}), row({0.5, -1, 2, 1}), row({-1, 0.25, 1, 2})};
  const Tensor q = row({0.5, -0.25, 1, 0.75});
  const Tensor g = at::tensor({1.0, 2.0, 0.5, 1.0}, at::kDouble).requires_grad_();
  const Tensor weights = depth_weights(taken(s), depth_key(q, g), 2);
  expect_close("weights", weights, {0.216628, 0.090157, 0.588857, 0.404058, 0.194515, 0.505785}, 1e-6);
  const Tensor o = depth_read(taken(s), depth_key(q, g), 2);
  expect_close("o", o, {0.316541, -0.106971, 1.223743, 1.460706}, 1e-6);
  o.backward(row({1, -1, 0.5, 2}).detach());
  expect_close("dq", q.grad(), {0.27128, -2.13324, 0.13559, 0.51256}, 1e-5);
  expect_close("dg", g.grad(), {0.13564, 0.26665, 0.27118, 0.38442}, 1e-5);
  expect_close("ds 0", s[0].grad(), {0.06917, -0.14150, -0.04020, 0.00418}, 1e-5);
  expect_close("ds 1", s[1].grad(), {0.83612, -0.82983, 0.09066, 0.66624}, 1e-5);
  expect_close("ds 2", s[2].grad(), {0.22059, -0.10188, 0.29319, 0.99288}, 1e-5);
}

// Case 3.
TEST(DepthReadCases, FirstSiteIsExact) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Tensor s = normal({33, 40}, 1, type, 3.0).requires_grad_(), q = normal({1, 40}, 2, type).requires_grad_();
    const Tensor g = normal({40}, 3, type).requires_grad_(), dO = normal({33, 40}, 4, type);
    const Tensor o = depth_read(taken({s}), depth_key(q, g), 4).to(type);
    o.backward(dO);
    EXPECT_TRUE(at::equal(o, s));
    EXPECT_TRUE(at::equal(s.grad(), dO));
    EXPECT_FALSE(q.grad().defined());
    EXPECT_FALSE(g.grad().defined());
  }
}

// Case 6: the normalised key is not rounded to the storage type (0.3024 if it were).
TEST(DepthReadCases, KeysAreNotRounded) {
  const Tensor s0 = at::tensor({3.0, 1.0}).repeat({1, 512}).to(at::kBFloat16),
               s1 = at::full({1, 1024}, 2.0, at::kBFloat16);
  const Tensor key = depth_key(at::full({1, 1024}, 1.0 / 128, at::kBFloat16), at::ones({1024}, at::kBFloat16));
  EXPECT_EQ(key.scalar_type(), at::kFloat);
  EXPECT_NEAR(depth_weights(taken({s0, s1}), key, 1)[0].item<double>(), 0.3006, 0.0003);
}

// ... and neither is q * g.
TEST(DepthReadCases, TheKeyProductIsNotRounded) {
  const Tensor key = depth_key(at::full({1, 1}, 1.0078125, at::kBFloat16), at::full({1}, 1.0078125, at::kBFloat16));
  EXPECT_EQ(key.item<double>(), 1.0078125 * 1.0078125);
}

// Case 29, for every source: the gradients of 73 sites are summed in fp32 and rounded once.
TEST(DepthReadCases, SourceGradientsAreSummedBeforeRounding) {
  std::vector<Tensor> leaves;
  std::vector<DepthSource> sources;
  const Tensor key = depth_key(at::zeros({1, 8}, at::kBFloat16), at::ones({8}, at::kBFloat16));
  Tensor total = at::zeros({});
  for (int64_t site = 0; site < 73; ++site) {
    leaves.push_back(normal({2, 8}, site, at::kBFloat16).requires_grad_());
    sources.push_back(depth_source(leaves.back(), 1e-6));
    const Tensor dO = at::full({2, 8}, site == 0 ? 1.0 : (site + 1) / 512.0, at::kBFloat16);
    total = total + (depth_read(sources, key, 2).to(at::kBFloat16) * dO).sum().to(at::kFloat);
  }
  total.backward();
  EXPECT_TRUE(at::equal(leaves[0].grad(), at::full({2, 8}, 1.140625, at::kBFloat16)));
  for (int64_t i = 1; i < 73; ++i) {
    EXPECT_TRUE(at::equal(leaves[i].grad(), at::full({2, 8}, (73 - i) / 512.0, at::kBFloat16))) << i;
  }
}

// Case 1: no bound on the number of sources.
TEST(DepthReadCases, ManySources) {
  std::vector<Tensor> leaves;
  for (int64_t i = 0; i < 73; ++i)
    leaves.push_back(at::full({3, 64}, static_cast<double>(i), at::kFloat).requires_grad_());
  const Tensor o = depth_read(taken(leaves), depth_key(at::zeros({1, 64}), at::ones({64})), 4);
  EXPECT_TRUE(at::allclose(o, at::full({3, 64}, 36.0), 1e-6, 0));
  o.backward(at::full({3, 64}, 73.0));
  for (const Tensor& s : leaves) EXPECT_TRUE(at::allclose(s.grad(), at::ones({3, 64}), 1e-6, 0));
}

// Case 11's read half.
TEST(DepthReadCases, ZeroQueryGivesThePlainMean) {
  std::vector<Tensor> stored;
  for (int64_t i = 0; i < 5; ++i) stored.push_back(normal({7, 40}, i));
  for (const int64_t heads : {1, 2, 4, 8}) {
    const Tensor o =
        depth_read(taken(stored), depth_key(at::zeros({1, 40}, at::kDouble), at::ones({40}, at::kDouble)), heads);
    EXPECT_TRUE(at::allclose(o, at::stack(stored).mean(0), 0, 1e-15)) << heads;
  }
}

TEST(DepthReadCases, EqualSlicesMakeHeadsAgreeWithOne) {
  // Each head sees the same slice, with twice the query: its logit is that of one head over the full width.
  std::vector<Tensor> stored;
  for (int64_t i = 0; i < 4; ++i) stored.push_back(normal({7, 20}, i).repeat({1, 2}));
  const Tensor q = normal({1, 20}, 9).repeat({1, 2}), g = at::ones({40}, at::kDouble);
  const Tensor one = depth_read(taken(stored), depth_key(q, g), 1),
               two = depth_read(taken(stored), depth_key(q * 2, g), 2);
  EXPECT_TRUE(at::allclose(one, two, 0, 1e-13));
}

// Case 56.
TEST(DepthReadCases, UpstreamGradientsOfAnyLayout) {
  for (const Tensor& dO : awkward_views({7, 40}, at::kFloat)) {
    std::vector<std::vector<Tensor>> gradients;
    for (const Tensor& upstream : {dO, dO.contiguous().clone()}) {
      std::vector<Tensor> leaves;
      for (int64_t i = 0; i < 3; ++i) leaves.push_back(normal({7, 40}, i, at::kFloat).requires_grad_());
      const Tensor q = normal({1, 40}, 8, at::kFloat).requires_grad_(),
                   g = normal({40}, 9, at::kFloat).requires_grad_();
      depth_read(taken(leaves), depth_key(q, g), 4).backward(upstream);
      gradients.push_back({leaves[0].grad(), leaves[1].grad(), leaves[2].grad(), q.grad(), g.grad()});
    }
    for (size_t i = 0; i < gradients[0].size(); ++i) EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
  }
}

// Case 19: sources that are parts of a wider buffer, or transposed.
TEST(DepthReadCases, SourcesOfAnyLayout) {
  const Tensor wide = normal({7, 64}, 1, at::kFloat).slice(1, 0, 40), turned = normal({40, 7}, 2, at::kFloat).t();
  const Tensor key = depth_key(normal({1, 40}, 3, at::kFloat), at::ones({40}));
  EXPECT_TRUE(at::equal(depth_read(taken({wide, turned}), key, 4),
                        depth_read(taken({wide.contiguous(), turned.contiguous()}), key, 4)));
}

TEST(DepthReadCases, BadShapesAreRefused) {
  using std::invalid_argument;
  const Tensor s = at::zeros({2, 100}), key = at::zeros({100});
  const auto heads = message_of<invalid_argument>([&] { depth_read(taken({s, s}), key, 3); });
  EXPECT_NE(heads.find("100"), std::string::npos) << heads;
  EXPECT_NE(heads.find("got 3"), std::string::npos) << heads;
  EXPECT_NE(message_of<invalid_argument>([&] { depth_read(taken({s, s}), key, 0); }).find("got 0"), std::string::npos);
  EXPECT_NE(message_of<invalid_argument>([&] { depth_read({}, key, 1); }).find("none"), std::string::npos);
  EXPECT_NE(message_of<invalid_argument>([&] { depth_read(taken({s}), at::zeros({96}), 1); }).find("[96]"),
            std::string::npos);
  const auto source = message_of<invalid_argument>([&] { depth_weights(taken({s, at::zeros({3, 100})}), key, 1); });
  EXPECT_NE(source.find("[3, 100]"), std::string::npos) << source;
}

}  // namespace
}  // namespace mhar::ops
