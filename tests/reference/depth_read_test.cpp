#include "reference/depth_read.h"

#include "reference/check.h"

namespace mhar::reference {
namespace {

using Sources = std::vector<std::vector<double>>;

DepthRead<double> read(const DepthReadSizes& sizes, const Sources& sources, const std::vector<double>& q,
                       const std::vector<double>& g) {
  return depth_read<double>(sizes, sources, q, g);
}

Sources random_sources(const DepthReadSizes& sizes, uint64_t seed) {
  Sources sources;
  for (int64_t i = 0; i < sizes.sources; ++i) sources.push_back(normal(sizes.tokens * sizes.width, seed + i));
  return sources;
}

TEST(DepthRead, GradientsAgreeWithDifferences) {
  // A large eps in two rows: where it hardly counts, a gradient that forgets it passes.
  for (const DepthReadSizes sizes : {DepthReadSizes{4, 3, 12, 3}, DepthReadSizes{3, 1, 8, 1, 0.5},
                                     DepthReadSizes{2, 2, 6, 6}, DepthReadSizes{5, 2, 10, 2, 0.25}}) {
    Sources sources = random_sources(sizes, 10);
    std::vector<double> q = normal(sizes.width, 1), g = normal(sizes.width, 2);
    const std::vector<double> dO = normal(sizes.tokens * sizes.width, 3);
    const auto loss = [&] { return dot(read(sizes, sources, q, g).output, dO); };
    const auto gradients = depth_read_backward<double>(sizes, sources, q, g, read(sizes, sources, q, g), dO);
    expect_gradient(q, gradients.query, loss);
    expect_gradient(g, gradients.gain, loss);
    for (int64_t i = 0; i < sizes.sources; ++i) expect_gradient(sources[i], gradients.sources[i], loss);
  }
}

TEST(DepthRead, WorkedExample) {
  const DepthReadSizes sizes{3, 1, 4, 2};
  const Sources sources{{1, 2, -1, 0.5}, {0.5, -1, 2, 1}, {-1, 0.25, 1, 2}};
  const std::vector<double> q{0.5, -0.25, 1, 0.75}, g{1, 2, 0.5, 1}, dO{1, -1, 0.5, 2};
  const auto forward = read(sizes, sources, q, g);
  expect_near(forward.weights, {0.216628, 0.090157, 0.588857, 0.404058, 0.194515, 0.505785}, 1e-6);
  expect_near(forward.output, {0.316541, -0.106971, 1.223743, 1.460706}, 1e-6);
  const auto gradients = depth_read_backward<double>(sizes, sources, q, g, forward, dO);
  expect_near(gradients.query, {0.27128, -2.13324, 0.13559, 0.51256}, 1e-5);
  expect_near(gradients.gain, {0.13564, 0.26665, 0.27118, 0.38442}, 1e-5);
  expect_near(gradients.sources[0], {0.06917, -0.14150, -0.04020, 0.00418}, 1e-5);
  expect_near(gradients.sources[1], {0.83612, -0.82983, 0.09066, 0.66624}, 1e-5);
  expect_near(gradients.sources[2], {0.22059, -0.10188, 0.29319, 0.99288}, 1e-5);
}

TEST(DepthRead, NormRunsOverTheFullWidth) {
  const auto forward = read({2, 1, 4, 2, 0.0}, {{3, 0, 0, 0}, {0, 0, 0, 3}}, {1, 0, 0, 1}, {1, 1, 1, 1});
  EXPECT_NEAR(forward.weights[0], 0.880797, 1e-6);  // head 0 of source 0; a norm per head gives 0.804430
  EXPECT_NEAR(forward.weights[3], 0.880797, 1e-6);  // head 1 of source 1
  // The other side of the contrast: a head that is read alone has its own statistic.
  EXPECT_NEAR(read({2, 1, 2, 1}, {{3, 0}, {0, 0}}, {1, 0}, {1, 1}).weights[0], 0.804430, 1e-6);
}

TEST(DepthRead, HeadsMixTheirOwnSlices) {
  const double half = std::log(3.0) / 2;
  const Sources sources{{1, 1, 1, 1}, {1, -1, 1, -1}};
  const std::vector<double> q{0, half, 0, -half}, ones(4, 1.0);
  expect_near(read({2, 1, 4, 2, 0.0}, sources, q, ones).output, {1, 0.5, 1, -0.5}, 1e-12);
  expect_near(read({2, 1, 4, 1, 0.0}, sources, q, ones).output, {1, 0, 1, 0}, 1e-12);
}

TEST(DepthRead, ZeroQueryGivesTheMean) {
  const DepthReadSizes sizes{5, 3, 8, 4};
  const Sources sources = random_sources(sizes, 20);
  const auto forward = read(sizes, sources, std::vector<double>(8, 0.0), normal(8, 1));
  for (int64_t i = 0; i < 24; ++i) {
    double mean = 0;
    for (const auto& source : sources) mean += source[i] / 5;
    EXPECT_NEAR(forward.output[i], mean, 1e-15);
  }
}

TEST(DepthRead, WeightsSumToOne) {
  const DepthReadSizes sizes{7, 3, 8, 2};
  const auto forward = read(sizes, random_sources(sizes, 30), normal(8, 1, 10.0), normal(8, 2));
  for (int64_t at = 0; at < 6; ++at) {
    double total = 0;
    for (int64_t i = 0; i < 7; ++i) total += forward.weights[i * 6 + at];
    EXPECT_NEAR(total, 1.0, 1e-14);
  }
}

TEST(DepthRead, OneSourceIsExact) {
  const DepthReadSizes sizes{1, 3, 8, 2};
  const Sources sources = random_sources(sizes, 40);
  const std::vector<double> q = normal(8, 1), g = normal(8, 2), dO = normal(24, 3);
  const auto forward = read(sizes, sources, q, g);
  EXPECT_EQ(forward.output, sources[0]);
  const auto gradients = depth_read_backward<double>(sizes, sources, q, g, forward, dO);
  EXPECT_EQ(gradients.sources[0], dO);
  EXPECT_EQ(gradients.query, std::vector<double>(8, 0.0));
  EXPECT_EQ(gradients.gain, std::vector<double>(8, 0.0));
}

TEST(DepthRead, LargeLogitsStayFinite) {
  const DepthReadSizes sizes{3, 2, 4, 2};
  for (const double size : {10.0, 100.0, 1e4, 1e9}) {
    const Sources sources = random_sources(sizes, 50);
    const std::vector<double> q = normal(4, 1, size), g(4, 1.0), dO = normal(8, 3);
    const auto forward = read(sizes, sources, q, g);
    const auto gradients = depth_read_backward<double>(sizes, sources, q, g, forward, dO);
    for (double value : forward.output) EXPECT_LT(std::abs(value), 10) << size;
    for (double value : gradients.query) EXPECT_TRUE(std::isfinite(value)) << size;
    for (const auto& source : gradients.sources) {
      for (double value : source) EXPECT_TRUE(std::isfinite(value)) << size;
    }
  }
}

TEST(DepthRead, ManySourcesHaveNoBound) {
  const DepthReadSizes sizes{73, 2, 64, 4};
  Sources sources;
  for (int64_t i = 0; i < 73; ++i) sources.emplace_back(128, double(i));
  const std::vector<double> q(64, 0.0), g(64, 1.0), dO(128, 73.0);
  const auto forward = read(sizes, sources, q, g);
  expect_near(forward.output, std::vector<double>(128, 36.0), 1e-12);
  const auto gradients = depth_read_backward<double>(sizes, sources, q, g, forward, dO);
  for (const auto& source : gradients.sources) expect_near(source, std::vector<double>(128, 1.0), 1e-12);
}

TEST(DepthRead, KeyIsNeverRounded) {
  std::vector<double> alternating(1024, 1.0);
  for (int64_t d = 0; d < 1024; d += 2) alternating[d] = 3.0;
  const std::vector<double> q(1024, 1.0 / 128), g(1024, 1.0);
  const auto forward = read({2, 1, 1024, 1}, {alternating, std::vector<double>(1024, 2.0)}, q, g);
  EXPECT_NEAR(forward.weights[0], 0.3006, 3e-4);  // a normalised key rounded to bfloat16 gives 0.3024
}

TEST(DepthRead, SourceSumsItsReaders) {
  // The embedding is read by 73 sites; its gradient is exact where a running bfloat16 sum stays at 1.
  const int64_t D = 8;
  const std::vector<double> q(D, 0.0), g(D, 1.0);
  Sources sources;
  double total = 0;
  for (int64_t site = 0; site < 73; ++site) {
    const DepthReadSizes sizes{site + 1, 1, D, 2};
    sources.push_back(normal(D, 60 + site));
    const std::vector<double> dO(D, site == 0 ? 1.0 : double(site + 1) / 512);
    total += depth_read_backward<double>(sizes, sources, q, g, read(sizes, sources, q, g), dO).sources[0][0];
  }
  EXPECT_NEAR(total, 1.140625, 1e-14);
}

TEST(DepthRead, NoTokens) {
  const DepthReadSizes sizes{2, 0, 4, 2};
  const std::vector<double> q(4, 1.0);
  const auto forward = read(sizes, Sources(2), q, q);
  EXPECT_TRUE(forward.output.empty());
  const auto gradients = depth_read_backward<double>(sizes, Sources(2), q, q, forward, std::vector<double>{});
  EXPECT_EQ(gradients.query, std::vector<double>(4, 0.0));
}

}  // namespace
}  // namespace mhar::reference
