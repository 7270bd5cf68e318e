#include "ops/depth_read.h"

#include <fmt/format.h>

#include "ops/helpers.h"
#include "reference/depth_read.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using reference::DepthReadSizes;
using namespace mhar::testing;

struct Inputs {
  DepthReadSizes sizes;
  std::vector<Tensor> sources;  ///< [P, D] each
  Tensor query, gain, dO;       ///< [1, D], [D], [P, D]; all of the storage type, on the CPU
};

Inputs random_inputs(const DepthReadSizes& sizes, double logit, at::ScalarType type, uint64_t draw = 0) {
  Inputs in{sizes, {}, {}, {}, {}};
  const uint64_t seed = 1000 * draw;
  for (int64_t i = 0; i < sizes.sources; ++i)
    in.sources.push_back(normal({sizes.tokens, sizes.width}, seed + 10 + i, type));
  // Sources have rms 1, so a head's logit has the deviation of its query's norm.
  in.query = normal({1, sizes.width}, seed + 1, type, logit / std::sqrt(static_cast<double>(sizes.channels())));
  in.gain = normal({sizes.width}, seed + 2, at::kDouble, 0.2).add(1).to(type);
  in.dO = normal({sizes.tokens, sizes.width}, seed + 3, type);
  return in;
}

struct Result {
  Tensor output, sources, query, gain;  ///< the mix in the storage type; gradients, those of the sources stacked
};

Result through_op(const Inputs& in, at::Device device) {
  const auto leaf = [&](const Tensor& t) { return t.to(device).detach().clone().requires_grad_(); };
  std::vector<Tensor> leaves;
  std::vector<DepthSource> sources;
  for (const Tensor& s : in.sources)
    leaves.push_back(leaf(s)), sources.push_back(depth_source(leaves.back(), in.sizes.eps));
  const Tensor query = leaf(in.query), gain = leaf(in.gain);
  const Tensor output = depth_read(sources, depth_key(query, gain), in.sizes.heads).to(in.dO.scalar_type());
  output.backward(in.dO.to(device));
  std::vector<Tensor> gradients;
  for (const Tensor& s : leaves) gradients.push_back(s.grad());
  const auto or_zero = [](const Tensor& t) { return t.grad().defined() ? t.grad() : at::zeros_like(t); };
  return {output.detach(), at::stack(gradients), or_zero(query), or_zero(gain)};
}

template <typename T>
struct Loops {
  std::vector<T> output, sources, query, gain;
};

template <typename T>
Loops<T> through_loops(const Inputs& in) {
  std::vector<std::vector<T>> sources;
  for (const Tensor& s : in.sources) sources.push_back(values<T>(s));
  const auto q = values<T>(in.query), g = values<T>(in.gain), dO = values<T>(in.dO);
  auto read = reference::depth_read<T>(in.sizes, sources, q, g);
  if constexpr (std::is_same_v<T, float>) read.output = stored(read.output, in.dO.scalar_type());
  const auto gradients = reference::depth_read_backward<T>(in.sizes, sources, q, g, read, dO);
  Loops<T> result{read.output, {}, gradients.query, gradients.gain};
  for (const auto& ds : gradients.sources) result.sources.insert(result.sources.end(), ds.begin(), ds.end());
  return result;
}

struct Rule {
  Measured o, ds, dq, dg;
  void expect() const {
    o.expect("o");
    ds.expect("ds");
    dq.expect("dq");
    dg.expect("dg");
  }
};

struct Kind {
  double logit;  ///< size of the logits
  at::ScalarType type;
  at::Device device = at::kCPU;
};

// fp64 is checked here; narrower types go into `rule`.
void measure(Rule& rule, const DepthReadSizes& sizes, const Kind& kind, uint64_t draw) {
  const Inputs in = random_inputs(sizes, kind.logit, kind.type, draw);
  const Result got = through_op(in, kind.device);
  const auto exact = through_loops<double>(in);
  if (kind.type == at::kDouble) {
    const double tolerance = 1e-12 * std::max(1.0, kind.logit);  // a logit carries its own size in rounding errors
    expect_close("o", got.output, exact.output, tolerance);
    expect_close("ds", got.sources, exact.sources, tolerance);
    expect_close("dq", got.query, exact.query, tolerance);
    expect_close("dg", got.gain, exact.gain, tolerance);
    return;
  }
  const auto loops = through_loops<float>(in);
  rule.o.add(got.output, loops.output, exact.output, kind.type);
  rule.ds.add(got.sources, loops.sources, exact.sources, kind.type);
  rule.dq.add(got.query, loops.query, exact.query, kind.type);
  rule.dg.add(got.gain, loops.gain, exact.gain, kind.type);
}

// All numbers of sources and tokens at one width. Storage that is narrower than the sums has a rule for each shape;
// fp32 goes into `pooled`, which the caller looks at.
void check(int64_t width, int64_t heads, std::vector<int64_t> sources, std::vector<int64_t> tokens, const Kind& kind,
           int draws, Rule& pooled) {
  for (const int64_t N : sources) {
    for (const int64_t P : tokens) {
      SCOPED_TRACE(fmt::format("N {} P {} D {} H {} logits {} {} {}", N, P, width, heads, kind.logit,
                               c10::toString(kind.type), kind.device.str()));
      Rule own;
      Rule& rule = kind.type == at::kFloat ? pooled : own;
      const int times = kind.type == at::kFloat ? draws : 1;
      for (int draw = 0; draw < times; ++draw) measure(rule, {N, P, width, heads}, kind, draw);
      own.expect();
    }
  }
}

std::vector<int64_t> head_counts(int64_t width) {
  std::vector<int64_t> all;
  for (const int64_t heads : {1, 2, 4, 8}) {
    if (width % heads == 0) all.push_back(heads);
  }
  return all;
}

class DepthReadShapes : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(DepthReadShapes, FollowTheReference) {
  for (const int64_t width : {8, 40, 123, 1000}) {
    for (const int64_t heads : head_counts(width)) {
      SCOPED_TRACE(fmt::format("D {} H {}", width, heads));
      Rule pooled;
      check(width, heads, {1, 2, 3, 5, 17, 33}, {0, 1, 7, 33}, {1.0, GetParam()}, 2, pooled);
      pooled.expect();
    }
  }
}

TEST_P(DepthReadShapes, FollowTheReferenceAtLargeLogits) {
  for (const double logit : {10.0, 100.0, 1e4}) {
    SCOPED_TRACE(logit);
    Rule pooled;  // of all widths: only the few tokens whose largest logits nearly tie have an error to speak of
    for (const int64_t width : {8, 40, 123, 1000}) {
      for (const int64_t heads : head_counts(width))
        check(width, heads, {2, 3, 17}, {33}, {logit, GetParam()}, 6, pooled);
    }
    pooled.expect();
  }
}

TEST_P(DepthReadShapes, FollowTheReferenceOnEveryDevice) {
  for (const at::Device device : devices()) {
    for (const double logit : {1.0, 100.0}) {
      Rule pooled;
      check(1000, 8, {2, 17}, {0, 1, 33}, {logit, GetParam(), device}, 4, pooled);
      pooled.expect();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, DepthReadShapes, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& info) { return std::string(c10::toString(info.param)); });

TEST(DepthRead, TwoRunsGiveTheSameBits) {
  for (const at::Device device : devices()) {
    const Inputs in = random_inputs({17, 33, 40, 4}, 3.0, at::kBFloat16);
    const Result one = through_op(in, device), two = through_op(in, device);
    EXPECT_TRUE(at::equal(one.output, two.output) && at::equal(one.sources, two.sources));
    EXPECT_TRUE(at::equal(one.query, two.query) && at::equal(one.gain, two.gain));
  }
}

TEST(DepthRead, WeightsStayWeightsAtEveryLogit) {
  for (const double logit : {1.0, 10.0, 100.0, 1e4, 1e30}) {
    const Inputs in = random_inputs({5, 7, 40, 4}, logit, at::kBFloat16);
    std::vector<DepthSource> sources;
    for (const Tensor& s : in.sources) sources.push_back(depth_source(s, 1e-6));
    const Tensor weights = depth_weights(sources, depth_key(in.query, in.gain), 4);
    ASSERT_EQ(weights.sizes(), at::IntArrayRef({5, 7, 4}));
    EXPECT_TRUE(weights.isfinite().all().item<bool>()) << logit;
    EXPECT_LE(weights.max().item<float>(), 1.0f) << logit;
    EXPECT_GE(weights.min().item<float>(), 0.0f) << logit;
    EXPECT_LE((weights.sum(0) - 1).abs().max().item<float>(), 1e-6f) << logit;
  }
}

}  // namespace
}  // namespace mhar::ops
