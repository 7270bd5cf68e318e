// The chunked reads as an autograd object: against composed reads in fp64, its laws, and its guards.
#include "ops/depth_history.h"

#include <gmock/gmock.h>

#include "ops/depth_read.h"
#include "ops/helpers.h"
#include "ops/linear.h"
#include "ops/rms_norm.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

struct Toy {
  int64_t tokens = 7, width = 16, heads = 2, sites = 9;
  at::ScalarType type = at::kDouble;
  at::Device device = at::kCPU;
  int64_t chunk = 3;

  DepthReads reads() const { return {sites, width, heads, 1e-6, chunk}; }
};

struct Parameters {
  Tensor embedding;
  std::vector<Tensor> queries, gains, norms, weights;  ///< a sublayer is tanh(x) W

  explicit Parameters(const Toy& toy, uint64_t seed = 0) {
    const auto leaf = [&](const Tensor& t) { return t.to(toy.device, toy.type).requires_grad_(); };
    embedding = leaf(normal({toy.tokens, toy.width}, seed + 1));
    for (int64_t r = 0; r < toy.sites; ++r) {
      queries.push_back(leaf(normal({1, toy.width}, seed + 10 + r, at::kDouble, 0.4)));
      gains.push_back(leaf(normal({toy.width}, seed + 40 + r, at::kDouble, 0.2).add(1)));
      norms.push_back(leaf(normal({toy.width}, seed + 70 + r, at::kDouble, 0.2).add(1)));
      weights.push_back(leaf(normal({toy.width, toy.width}, seed + 100 + r, at::kDouble, 0.4)));
    }
  }
  std::vector<Tensor> all() const {
    std::vector<Tensor> list{embedding};
    for (const auto* part : {&queries, &gains, &norms, &weights}) list.insert(list.end(), part->begin(), part->end());
    return list;
  }
};

DepthHistory history_of(const Toy& toy) {
  return {depth_engine(toy.reads(), toy.tokens, toy.type, toy.device), toy.reads(), toy.tokens, toy.type, toy.device};
}

/// The reads y of all sites; sublayers write into their slots where `in_place`.
std::vector<Tensor> chunked(const Toy& toy, const Parameters& p, bool in_place = true, DepthHistory* given = nullptr) {
  DepthHistory own = history_of(toy);
  DepthHistory& history = given ? *given : own;
  history.open(p.queries, p.gains, p.norms);
  std::vector<Tensor> reads;
  Tensor source = p.embedding;
  for (int64_t r = 0; r < toy.sites; ++r) {
    reads.push_back(history.step(source));
    if (r + 1 == toy.sites) break;
    const Tensor inner = reads.back().tanh();
    source = in_place ? linear(inner, {{p.weights[r], {}}}, history.slot(r + 1)) : at::linear(inner, p.weights[r]);
  }
  return reads;
}

std::vector<Tensor> composed(const Toy& toy, const Parameters& p) {
  std::vector<DepthSource> sources;
  std::vector<Tensor> reads;
  Tensor source = p.embedding;
  for (int64_t r = 0; r < toy.sites; ++r) {
    sources.push_back(depth_source(source, 1e-6));
    const Tensor mix = depth_read(sources, depth_key(p.queries[r], p.gains[r]), toy.heads);
    reads.push_back(rms_norm(mix.to(toy.type), p.norms[r], 1e-6));
    source = at::linear(reads.back().tanh(), p.weights[r]);
  }
  return reads;
}

std::vector<Tensor> gradients(const std::vector<Tensor>& reads, const Parameters& p, int64_t loss_site) {
  Tensor loss = reads[loss_site].square().sum();
  if (loss_site > 2) loss = loss + reads[2].pow(3).sum();  // a second loss, earlier
  return torch::autograd::grad({loss}, p.all(), {}, c10::nullopt, false, /*allow_unused=*/true);
}

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const Tensor zero = at::zeros({1}, at::kDouble);
    const Tensor a = got[i].defined() ? got[i].to(at::kCPU, at::kDouble) : zero;
    const Tensor b = wanted[i].defined() ? wanted[i].to(at::kCPU, at::kDouble) : zero;
    const double size = std::max(b.abs().max().item<double>(), 1e-3);
    EXPECT_LE((a - b).abs().max().item<double>(), tolerance * size) << "tensor " << i;
  }
}

TEST(DepthHistory, EqualsComposedReads) {
  for (const int64_t heads : {1, 2, 4}) {
    for (const int64_t chunk : {0, 1, 2, 3, 4, 8, 9, 16}) {
      for (const int64_t loss_site : {8, 5, 1, 0}) {
        SCOPED_TRACE(c10::str("H ", heads, " chunk ", chunk, " loss at site ", loss_site));
        Toy toy;
        toy.heads = heads, toy.chunk = chunk;
        const Parameters p(toy);
        const auto ours = chunked(toy, p), theirs = composed(toy, p);
        expect_same(ours, theirs, 1e-12);
        expect_same(gradients(ours, p, loss_site), gradients(theirs, p, loss_site), 1e-11);
      }
    }
  }
}

// Writing a slot in place and having it copied there are the same computation.
TEST(DepthHistory, SlotsSpareACopyAndNothingElse) {
  for (const at::Device device : devices()) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      Toy toy;
      toy.type = type, toy.device = device, toy.width = 64;
      const Parameters p(toy);
      const auto in_place = chunked(toy, p), copied = chunked(toy, p, false);
      for (int64_t r = 0; r < toy.sites; ++r) EXPECT_TRUE(at::equal(in_place[r], copied[r])) << r;
      const auto a = gradients(in_place, p, 8), b = gradients(copied, p, 8);
      for (size_t i = 0; i < a.size(); ++i) {
        if (!a[i].defined()) continue;
        EXPECT_TRUE(at::equal(a[i], b[i])) << i;
      }
    }
  }
}

TEST(DepthHistory, SameBitsOnEveryRun) {
  for (const at::Device device : devices()) {
    Toy toy;
    toy.type = at::kBFloat16, toy.device = device, toy.width = 128, toy.sites = 17, toy.chunk = 0;
    const Parameters p(toy);
    const auto first = gradients(chunked(toy, p), p, 16);
    for (int run = 0; run < 20; ++run) {
      const auto again = gradients(chunked(toy, p), p, 16);
      for (size_t i = 0; i < first.size(); ++i) {
        if (!first[i].defined()) continue;
        ASSERT_TRUE(at::equal(first[i], again[i])) << "run " << run << ", tensor " << i;
      }
    }
  }
}

// The thread count moves no bit: sums over tokens are cut into fixed blocks. Sublayers are left out, since LibTorch
// may split their products by threads.
TEST(DepthHistory, ThreadsDoNotMoveBits) {
  Toy toy;
  toy.type = at::kFloat, toy.tokens = 333;
  const Parameters p(toy);
  std::vector<Tensor> leaves = p.all();
  leaves.resize(1 + 3 * toy.sites);
  const auto run = [&](int threads) {
    at::set_num_threads(threads);
    DepthHistory history = history_of(toy);
    history.open(p.queries, p.gains, p.norms);
    Tensor total = history.step(p.embedding).square();
    for (int64_t r = 1; r < toy.sites; ++r) {
      const Tensor source = normal({toy.tokens, toy.width}, r, toy.type).requires_grad_();
      total = total + history.step(source).square();
    }
    const auto result = torch::autograd::grad({total.sum()}, leaves);
    at::set_num_threads(1);
    return result;
  };
  const auto one = run(1), three = run(3);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
}

TEST(DepthHistory, GradientsAddUpOverMicrobatches) {
  Toy toy;
  const Parameters p(toy);
  const auto total = [&](const auto& pass) {
    for (const Tensor& t : p.all()) t.mutable_grad() = Tensor();
    for (int microbatch = 0; microbatch < 2; ++microbatch) pass(toy, p)[8].pow(2 + microbatch).sum().backward();
    std::vector<Tensor> sums;
    for (const Tensor& t : p.all()) sums.push_back(t.grad().defined() ? t.grad().clone() : Tensor());
    return sums;
  };
  const auto ours = total([](const Toy& t, const Parameters& q) { return chunked(t, q); });
  expect_same(ours, total([](const Toy& t, const Parameters& q) { return composed(t, q); }), 1e-11);
}

TEST(DepthHistory, TwoPassesMayBeOpenAtOnce) {
  Toy small, large;
  large.tokens = 12, large.width = 24, large.heads = 3, large.sites = 11;
  const Parameters p(small), q(large, 500);
  const auto one = chunked(small, p), two = chunked(large, q);
  {
    const at::NoGradGuard no_gradient;  // an evaluation in between
    expect_same(chunked(small, p), one, 0);
  }
  expect_same(gradients(two, q, 10), gradients(composed(large, q), q, 10), 1e-11);
  expect_same(gradients(one, p, 8), gradients(composed(small, p), p, 8), 1e-11);
}

TEST(DepthHistory, NothingToRead) {
  for (const at::Device device : devices()) {
    Toy toy;
    toy.tokens = 0, toy.type = at::kFloat, toy.device = device;
    const Parameters p(toy);
    const auto reads = chunked(toy, p);
    EXPECT_EQ(reads[8].sizes(), at::IntArrayRef({0, 16}));
    for (const Tensor& g : gradients(reads, p, 8)) {
      if (!g.defined()) continue;
      EXPECT_EQ(g.abs().sum().item<double>(), 0);
    }
  }
}

// Cases 19 and 56: strided sources and upstream gradients.
TEST(DepthHistory, TakesAnyLayout) {
  for (const at::Device device : devices()) {
    Toy toy;
    toy.type = at::kFloat, toy.device = device;
    const Parameters p(toy);
    const Tensor wide = normal({toy.tokens, toy.width + 24}, 5, toy.type).to(device);
    const Tensor turned = normal({toy.width, toy.tokens}, 6, toy.type).to(device);
    for (const Tensor& source : {wide.slice(1, 0, toy.width), turned.t()}) {
      DepthHistory a = history_of(toy), b = history_of(toy);
      a.open(p.queries, p.gains, p.norms), b.open(p.queries, p.gains, p.norms);
      EXPECT_TRUE(at::equal(a.step(source), b.step(source.contiguous())));
    }
    for (const Tensor& view : awkward_views({toy.tokens, toy.width}, toy.type)) {
      const Tensor dO = view.to(device);
      const auto plain = torch::autograd::grad({chunked(toy, p)[8]}, {p.embedding}, {dO.contiguous().clone()});
      EXPECT_TRUE(at::equal(torch::autograd::grad({chunked(toy, p)[8]}, {p.embedding}, {dO})[0], plain[0]));
    }
  }
}

TEST(DepthHistory, WeightsAreThoseOfTheReads) {
  for (const at::Device device : devices()) {
    Toy toy;
    toy.device = device;
    toy.type = device.is_cpu() ? at::kDouble : at::kFloat;
    const Parameters p(toy);
    const at::NoGradGuard no_gradient;
    DepthHistory history = history_of(toy);
    const auto reads = chunked(toy, p, true, &history);
    std::vector<DepthSource> sources{depth_source(p.embedding, 1e-6)};
    for (int64_t r = 1; r < toy.sites; ++r)
      sources.push_back(depth_source(at::linear(reads[r - 1].tanh(), p.weights[r - 1]), 1e-6));
    for (int64_t r = 0; r < toy.sites; ++r) {
      const std::vector<DepthSource> seen(sources.begin(), sources.begin() + r + 1);
      const Tensor key = depth_key(p.queries[r], p.gains[r]);
      const double tolerance = toy.type == at::kDouble ? 1e-12 : 2e-5;
      EXPECT_LE((history.weights(r) - depth_weights(seen, key, toy.heads)).abs().max().item<double>(), tolerance) << r;
      // Case 16: what a tap sees is the read, not the newest source.
      EXPECT_LE((history.mix(r) - depth_read(seen, key, toy.heads)).abs().max().item<double>(), 10 * tolerance) << r;
    }
  }
}

// Case 18: a live source is never written over.
TEST(DepthHistory, SourcesStayUntilTheirLastUse) {
  for (const int64_t layers : {1, 2, 36}) {
    Toy toy;
    toy.sites = 2 * layers + 1, toy.chunk = 0;
    const Parameters p(toy);
    DepthHistory history = history_of(toy);
    history.open(p.queries, p.gains, p.norms);
    std::vector<Tensor> kept;
    for (int64_t r = 0; r < toy.sites; ++r) {
      kept.push_back(normal({toy.tokens, toy.width}, 900 + r));
      history.slot(r).copy_(kept.back());
      history.step(history.slot(r));
      for (int64_t i = 0; i <= r; ++i) ASSERT_TRUE(at::equal(history.slot(i), kept[i])) << "site " << r;
    }
  }
}

// ---- guards

TEST(DepthHistoryGuards, OneBackward) {
  Toy toy;
  const Parameters p(toy);
  const Tensor loss = chunked(toy, p)[8].sum();
  loss.backward({}, /*retain_graph=*/true);
  EXPECT_THAT(message_of<std::logic_error>([&] { loss.backward(); }), ::testing::HasSubstr("a second backward"));
}

TEST(DepthHistoryGuards, NoSecondDerivatives) {
  Toy toy;
  const Parameters p(toy);
  const Tensor loss = chunked(toy, p)[8].sum();
  EXPECT_THAT(message_of<std::logic_error>([&] { loss.backward({}, true, /*create_graph=*/true); }),
              ::testing::HasSubstr("to be differentiated"));
}

TEST(DepthHistoryGuards, NoStepAfterBackward) {
  Toy toy;
  const Parameters p(toy);
  DepthHistory history = history_of(toy);
  history.open(p.queries, p.gains, p.norms);
  const Tensor first = history.step(p.embedding);
  first.sum().backward();
  EXPECT_THAT(message_of<std::logic_error>([&] { history.step(first.detach()); }),
              ::testing::HasSubstr("after the backward pass has begun"));
  EXPECT_THAT(message_of<std::logic_error>([&] { history.weights(0); }), ::testing::HasSubstr("not read"));
}

TEST(DepthHistoryGuards, OrderOfCalls) {
  Toy toy;
  const Parameters p(toy);
  DepthHistory history = history_of(toy);
  EXPECT_THAT(message_of<std::logic_error>([&] { history.step(p.embedding); }), ::testing::HasSubstr("before open"));
  history.open(p.queries, p.gains, p.norms);
  EXPECT_THAT(message_of<std::logic_error>([&] { history.open(p.queries, p.gains, p.norms); }),
              ::testing::HasSubstr("opened twice"));
  EXPECT_THAT(message_of<std::logic_error>([&] { history.weights(0); }), ::testing::HasSubstr("not read"));
  for (int64_t r = 0; r < toy.sites; ++r) history.step(p.embedding);
  EXPECT_THAT(message_of<std::logic_error>([&] { history.step(p.embedding); }),
              ::testing::HasSubstr("more than 9 steps"));
}

TEST(DepthHistoryGuards, ShapesAndTypes) {
  Toy toy;
  const Parameters p(toy);
  DepthHistory history = history_of(toy);
  const std::vector<Tensor> few(p.queries.begin(), p.queries.end() - 1);
  EXPECT_THAT(message_of<std::invalid_argument>([&] { history.open(few, p.gains, p.norms); }),
              ::testing::HasSubstr("one for each of 9"));
  std::vector<Tensor> narrow = p.gains;
  narrow[3] = narrow[3].slice(0, 0, 8);
  EXPECT_THAT(message_of<std::invalid_argument>([&] { history.open(p.queries, narrow, p.norms); }),
              ::testing::HasSubstr("shape [16]"));
  history.open(p.queries, p.gains, p.norms);
  EXPECT_THAT(message_of<std::invalid_argument>([&] { history.step(p.embedding.slice(0, 0, 3)); }),
              ::testing::HasSubstr("shape [7, 16]"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { history.step(p.embedding.to(at::kFloat)); }),
              ::testing::HasSubstr("Float"));
}

// A slot is used again once its gradient is out. Whoever saved the source itself is told instead of reading that.
TEST(DepthHistoryGuards, SavedSourceIsMissed) {
  Toy toy;
  const Parameters p(toy);
  DepthHistory history = history_of(toy);
  history.open(p.queries, p.gains, p.norms);
  const Tensor factor = at::ones({toy.tokens, toy.width}, toy.type).requires_grad_();
  Tensor source = p.embedding, read, tap;
  for (int64_t r = 0; r < toy.sites; ++r) {
    read = history.step(source);
    if (r + 1 < toy.sites) source = linear(read.tanh(), {{p.weights[r], {}}}, history.slot(r + 1));
    if (r + 1 == 7) tap = (factor * source.detach()).sum();
  }
  read.sum().backward();
  EXPECT_THAT(message_of<std::exception>([&] { tap.backward(); }), ::testing::HasSubstr("inplace operation"));
}

}  // namespace
}  // namespace mhar::ops
