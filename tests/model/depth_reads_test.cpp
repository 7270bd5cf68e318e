// The chunked engine inside a whole model, against composed reads: loss and every parameter's gradient.
#include "base/error.h"
#include "model/helpers.h"
#include "ops/token_loss.h"
#include "residual/design.h"

namespace mhar {
namespace {

using at::Tensor;
using namespace mhar::testing;

struct Outcome {
  double loss;
  std::map<std::string, Tensor> gradients;
};

struct Kind {
  at::ScalarType type;
  at::Device device;
  double query;  ///< deviation of the queries
};

Outcome outcome(ModelConfig config, bool composed, const Kind& kind, int64_t batch, int64_t tokens) {
  config.composed_reads = composed;
  Decoder model(config, kind.type, kind.device);
  model.parameters().initialise(7);
  {
    const at::NoGradGuard no_gradient;  // queries of zero would leave the reads plain means
    for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
      if (model.parameters().specs()[i].initial.pattern != Initial::Pattern::zeros) continue;
      const Tensor& view = model.parameters().view(i);
      view.copy_(normal(view.sizes(), 1000 + i, kind.type, kind.query));
    }
  }
  model.parameters().gradient();
  const Tensor ids = some_ids(batch, tokens, config.vocabulary).to(kind.device);
  const auto loss = ops::token_loss(model.hidden(ids), model.head().value, ids.roll(-1, 1).reshape({-1}),
                                    {.weight = 1.0 / static_cast<double>(batch * tokens)});
  loss.objective.backward();
  Outcome result{loss.sum.item<double>() / static_cast<double>(batch * tokens), {}};
  for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
    result.gradients[model.parameters().specs()[i].name] =
        model.parameters().part(flat_gradient(model.parameters()), i).to(at::kCPU, at::kDouble);
  }
  return result;
}

void compare_one(const ModelConfig& config, const Kind& kind, int64_t batch, int64_t tokens, double tolerance) {
  for (const auto& entry : residual::registry()) {
    ModelConfig c = config;
    c.design = entry.name;
    SCOPED_TRACE(c10::str(entry.name, " in ", kind.type, " on ", kind.device));
    const Outcome fast = outcome(c, false, kind, batch, tokens), plain = outcome(c, true, kind, batch, tokens);
    EXPECT_NEAR(fast.loss, plain.loss, tolerance * plain.loss);
    for (const auto& [name, wanted] : plain.gradients) {
      const double size = wanted.norm().item<double>();
      EXPECT_LE((fast.gradients.at(name) - wanted).norm().item<double>(), tolerance * size + 1e-12) << name;
    }
  }
}

// In fp64 with strong queries: the same function. In fp32, where rounding grows over the depth, with weaker ones.
void compare(const ModelConfig& config, int64_t batch, int64_t tokens) {
  compare_one(config, {at::kDouble, at::kCPU, 0.3}, batch, tokens, 1e-10);
  for (const at::Device device : devices()) compare_one(config, {at::kFloat, device, 0.05}, batch, tokens, 1e-5);
}

TEST(DepthReadsInAModel, TinyEqualsComposed) {
  ModelConfig tiny = find_scale("tiny").model;
  tiny.vocabulary = 259;
  compare(tiny, 2, 64);
}

TEST(DepthReadsInAModel, ThirtySixLayersEqualComposed) {
  ModelConfig deep = small_config("mhar", 36);
  deep.width = 64, deep.heads = 4, deep.kv_heads = 2, deep.head_dim = 16, deep.ffn = 128;
  compare(deep, 2, 32);
}

TEST(DepthReadsInAModel, AnyChunkGivesTheSame) {
  ModelConfig config = small_config("mhar", 5);
  const Tensor ids = some_ids(2, 9, 37);
  const Tensor wanted = small_model(config).hidden(ids);
  for (int64_t chunk = 1; chunk <= 16; ++chunk) {
    config.read_chunk = chunk;
    EXPECT_TRUE(at::allclose(small_model(config).hidden(ids), wanted, 0, 1e-12)) << chunk;
  }
}

TEST(DepthReadsInAModel, TheLogNamesTheReads) {
  ModelConfig config = small_config("mhar");
  const auto words = [&](at::ScalarType type) { return make_design(config)->reads(4, type, at::kCPU); };
  EXPECT_EQ(words(at::kFloat), "chunked (cpu)");
  config.composed_reads = true;
  EXPECT_EQ(words(at::kFloat), "composed (as asked for)");
  config.design = "standard";
  EXPECT_EQ(words(at::kFloat), "");
}

}  // namespace
}  // namespace mhar
