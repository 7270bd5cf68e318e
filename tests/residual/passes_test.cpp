// What every design's sublayers read, against the reference and the laws.
#include <map>

#include "ops/helpers.h"
#include "reference/depth_read.h"
#include "reference/rms_norm.h"
#include "residual/design.h"

namespace mhar::residual {
namespace {

using at::Tensor;
using namespace mhar::testing;

constexpr int64_t kTokens = 5, kWidth = 24;

struct Made {
  std::unique_ptr<Design> design;
  std::map<std::string, Tensor> parameters;
  std::vector<Tensor> weights;  ///< of each site, from the observer
  std::vector<Tensor> reads;
  std::vector<Tensor> sources;  ///< the embedding and each sublayer's output
  Tensor norm;
};

// A pass whose sublayers answer with random outputs, whatever they read.
Made pass_through(const std::string& name, int64_t layers, int64_t heads, bool random_queries,
                  at::ScalarType type = at::kDouble, bool composed = false) {
  const Shape shape{
      .width = kWidth, .layers = layers, .heads = heads, .kv_heads = 2, .composed_reads = composed, .read_chunk = 3};
  Made made{find(name).make(shape), {}, {}, {}, {}, {}};
  uint64_t seed = 100;
  for (const ParameterSpec& spec : made.design->parameters()) {
    const bool query = spec.initial.pattern == Initial::Pattern::zeros;
    const Tensor start = query ? at::zeros(spec.shape, at::kDouble) : at::ones(spec.shape, at::kDouble);
    made.parameters[spec.name] =
        (random_queries ? start + normal(spec.shape, seed++, at::kDouble, 0.4) : start).to(type).requires_grad_();
  }
  made.norm = normal({kWidth}, 7, at::kDouble, 0.2).add(1).to(type);
  made.design->bind([&](const std::string& parameter) { return made.parameters.at(parameter); });
  made.sources.push_back(normal({kTokens, kWidth}, 0, type).requires_grad_());
  const Norms norms(2 * layers + 1, made.norm);
  const auto pass = made.design->begin(norms, [&](int64_t site, const Tensor& weights) {
    EXPECT_EQ(site, static_cast<int64_t>(made.weights.size()));
    made.weights.push_back(weights);
  });
  pass->start(made.sources[0]);
  for (int64_t site = 0; site <= 2 * layers; ++site) {
    made.reads.push_back(pass->read(site));
    if (site == 2 * layers) break;
    made.sources.push_back(normal({kTokens, kWidth}, site + 1, type).requires_grad_());
    pass->write(site, made.sources.back());
  }
  return made;
}

std::string prefix(int64_t site, int64_t layers) {
  if (site == 2 * layers) return "model.final_res_";
  return "model.layers." + std::to_string(site / 2) + (site % 2 == 0 ? ".attn_res_" : ".mlp_res_");
}

std::vector<double> normed(const Made& made, const std::vector<double>& mix) {
  return reference::rms_norm<double>({kTokens, kWidth, 1e-6}, mix, values<double>(made.norm)).output;
}

// Case 14: the source list is the embedding and each sublayer's raw output, once; never a read.
TEST(DepthPass, SiteReadsTheEmbeddingAndEveryEarlierOutput) {
  constexpr int64_t layers = 6;
  for (const auto& [name, heads] : {std::pair<std::string, int64_t>{"single", 1}, {"mhar", 2}, {"mhar", 8}}) {
    const Made made = pass_through(name, layers, heads, /*random_queries=*/true);
    ASSERT_EQ(made.weights.size(), 13u);
    std::vector<std::vector<double>> sources;
    for (int64_t site = 0; site <= 2 * layers; ++site) {
      EXPECT_EQ(made.weights[site].sizes(), at::IntArrayRef({site + 1, kTokens, heads})) << site;
      sources.push_back(values<double>(made.sources[site]));
      const auto q = values<double>(made.parameters.at(prefix(site, layers) + "proj.weight"));
      const auto g = values<double>(made.parameters.at(prefix(site, layers) + "norm.weight"));
      const auto exact = reference::depth_read<double>({site + 1, kTokens, kWidth, heads}, sources, q, g);
      expect_close("weights", made.weights[site], exact.weights, 1e-12);
      expect_close("read of site " + std::to_string(site), made.reads[site], normed(made, exact.output), 1e-12);
    }
    EXPECT_EQ(made.weights.back().size(0), 13);
    for (const Tensor& source : made.sources) {
      for (const Tensor& read : made.reads) EXPECT_FALSE(at::equal(source, read));
    }
  }
}

// Case 11: queries start at zero, so site 4 of two layers reads the mean of its five sources.
TEST(DepthPass, FreshReadsAreMeans) {
  for (const char* name : {"single", "mhar"}) {
    const Made made = pass_through(name, 2, 0, /*random_queries=*/false);
    const Tensor mean = at::stack(at::TensorList(made.sources)).mean(0);
    expect_close(name, made.reads[4], normed(made, values<double>(mean)), 1e-14);
    EXPECT_TRUE(at::allclose(made.weights[4], at::full_like(made.weights[4], 0.2), 0, 1e-15));
  }
}

TEST(DepthPass, OneHeadIsSingle) {
  for (const auto type : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const Made single = pass_through("single", 3, 0, true, type), one = pass_through("mhar", 3, 1, true, type);
    for (size_t site = 0; site < single.reads.size(); ++site)
      EXPECT_TRUE(at::equal(single.reads[site], one.reads[site])) << site;
  }
}

TEST(DepthPass, EverySourceHearsFromEveryLaterSite) {
  for (const bool composed : {false, true}) {
    for (size_t site = 0; site < 7; ++site) {
      const Made made = pass_through("mhar", 3, 2, true, at::kDouble, composed);
      const auto gradients =
          torch::autograd::grad({made.reads[site].square().sum()}, made.sources, {}, {}, false, true);
      for (size_t i = 0; i < made.sources.size(); ++i) {
        EXPECT_EQ(gradients[i].defined() && gradients[i].abs().max().item<double>() > 0, i <= site)
            << "site " << site << ", source " << i;
      }
    }
  }
}

TEST(StandardPass, ReadsTheSumSoFar) {
  const Made made = pass_through("standard", 3, 0, false);
  EXPECT_TRUE(made.weights.empty()) << "nothing to observe";
  Tensor stream = made.sources[0];
  for (size_t site = 0; site < made.reads.size(); ++site) {
    if (site > 0) stream = stream + made.sources[site];
    expect_close("site " + std::to_string(site), made.reads[site], normed(made, values<double>(stream)), 1e-13);
  }
}

// A pass must not write into what it was handed (case 18's kind).
TEST(Passes, SourcesStayAsTheyWere) {
  for (const Entry& entry : registry()) {
    const Made made = pass_through(entry.name, 3, 0, true, at::kFloat);
    for (size_t i = 0; i < made.sources.size(); ++i) {
      EXPECT_TRUE(at::equal(made.sources[i], normal({kTokens, kWidth}, i, at::kFloat)))
          << entry.name << ", source " << i;
    }
  }
}

}  // namespace
}  // namespace mhar::residual
