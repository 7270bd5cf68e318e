#include "model/parameters.h"

#include "config/model_config.h"
#include "model/helpers.h"
#include "model/names.h"
#include "residual/design.h"

namespace mhar {
namespace {

using at::Tensor;
using namespace mhar::testing;

int64_t count(const std::string& scale, const std::string& design) {
  ModelConfig config = find_scale(scale).model;
  config.design = design;
  int64_t total = 0;
  for (const ParameterSpec& spec : Decoder::specs(config)) total += spec.count();
  return total;
}

TEST(Parameters, Counts) {
  EXPECT_EQ(count("100m", "standard"), 115'554'304);
  EXPECT_EQ(count("100m", "single"), 115'579'904);
  EXPECT_EQ(count("100m", "mhar"), 115'579'904);
  for (const char* scale : {"350m", "1b", "8b", "d768", "tiny"}) {
    const ModelConfig c = find_scale(scale).model;
    EXPECT_EQ(count(scale, "mhar") - count(scale, "standard"), c.sites() * 2 * c.width) << scale;
  }
}

// Case 45: no padding of the vocabulary in what is stored. Case 63: the head dimension is a dimension of its own.
TEST(Parameters, ShapesFollowTheConfiguration) {
  for (const int64_t vocabulary : {1000, 1024}) {
    ModelConfig config = small_config("standard");
    config.vocabulary = vocabulary;
    EXPECT_EQ(Decoder(config, at::kFloat, at::kCPU).parameters().get(names::kEmbedding).sizes(),
              at::IntArrayRef({vocabulary, 16}));
  }
  ModelConfig config = small_config("standard");
  config.width = 1024, config.heads = 16, config.kv_heads = 8, config.head_dim = 128;
  const auto specs = Decoder::specs(config);
  const auto shape = [&](const char* name) {
    for (const auto& spec : specs) {
      if (spec.name == names::in_layer(1, name)) return spec.shape;
    }
    return std::vector<int64_t>{};
  };
  EXPECT_EQ(shape(names::kQuery), (std::vector<int64_t>{2048, 1024}));
  EXPECT_EQ(shape(names::kKey), (std::vector<int64_t>{1024, 1024}));
  EXPECT_EQ(shape(names::kAttentionOutput), (std::vector<int64_t>{1024, 2048}));
}

TEST(Parameters, TiedModelsStoreNoHead) {
  const auto has_head = [](bool tied) {
    ModelConfig config = small_config("standard");
    config.tied = tied;
    const auto specs = Decoder::specs(config);
    return std::any_of(specs.begin(), specs.end(), [](const auto& spec) { return spec.name == names::kHead; });
  };
  EXPECT_FALSE(has_head(true));
  EXPECT_TRUE(has_head(false));
}

TEST(Parameters, LieInOneBufferWithZeroPadding) {
  Decoder model = small_model(small_config("mhar"), at::kBFloat16);
  Parameters& parameters = model.parameters();
  int64_t total = 0;
  Tensor padding = at::ones(parameters.flat().sizes(), at::kBool);
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    const Tensor& view = parameters.view(i);
    EXPECT_EQ(parameters.offset(i) * 2 % 64, 0);
    EXPECT_TRUE(view.is_leaf() && view.requires_grad());
    EXPECT_EQ(view.data_ptr(), parameters.part(parameters.flat(), i).data_ptr());
    total += view.numel();
    padding.narrow(0, parameters.offset(i), view.numel()).fill_(false);
  }
  EXPECT_EQ(parameters.count(), total);
  EXPECT_EQ(padding.sum().item<int64_t>(), parameters.flat().numel() - total) << "parameters overlap";
  EXPECT_EQ(parameters.flat().masked_select(padding).abs().sum().item<float>(), 0.0f);

  const Tensor gradient = flat_gradient(parameters);
  model.hidden(some_ids(1, 5, 37)).sum().backward();
  EXPECT_GT(gradient.abs().sum().item<float>(), 0.0f) << "backward adds into the buffer";
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    EXPECT_EQ(parameters.view(i).grad().data_ptr(), parameters.part(gradient, i).data_ptr())
        << parameters.specs()[i].name;
  }
  EXPECT_THROW(parameters.get("model.nothing"), std::out_of_range);
}

// Blocks of a size worth it have a piece of their own; small ones join what comes next.
TEST(Parameters, GradientsLieInPiecesOfWholeBlocks) {
  ModelConfig config = small_config("mhar", 3);
  config.vocabulary = 5000, config.width = 512, config.heads = 8, config.kv_heads = 4, config.head_dim = 64;
  config.ffn = 1536;
  Decoder model(config, at::kBFloat16, at::kCPU);
  Parameters& parameters = model.parameters();
  const auto& pieces = parameters.gradient();
  ASSERT_EQ(pieces.size(), 5u);
  int64_t end = 0;
  for (size_t p = 0; p < pieces.size(); ++p) {
    EXPECT_EQ(pieces[p].begin, end);
    end += pieces[p].values.numel();
    const std::string first = p == 0   ? names::kEmbedding
                              : p == 4 ? names::kFinalNorm
                                       : names::in_layer(static_cast<int64_t>(p) - 1, names::kAttentionNorm);
    EXPECT_EQ(parameters.gradient_place(first).data_ptr(), pieces[p].values.data_ptr()) << first;
  }
  EXPECT_EQ(end, parameters.flat().numel());
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    const auto at =
        std::find_if(pieces.rbegin(), pieces.rend(), [&](const auto& p) { return p.begin <= parameters.offset(i); });
    const Tensor part = at->values.narrow(0, parameters.offset(i) - at->begin, parameters.specs()[i].count());
    EXPECT_EQ(parameters.view(i).grad().data_ptr(), part.data_ptr()) << parameters.specs()[i].name;
  }
}

// Memory that comes back holds anything, between the parameters too, and the norm goes over all of it.
TEST(Parameters, WhatLiesBetweenParametersIsZeroAgain) {
  for (const auto& entry : residual::registry()) {
    Decoder model = small_model(small_config(entry.name), at::kBFloat16);
    Parameters& parameters = model.parameters();
    const auto backward = [&] { model.hidden(some_ids(2, 5, 37)).square().sum().backward(); };
    parameters.clear_gradient();
    backward();
    const Tensor once = flat_gradient(parameters).clone();
    parameters.clear_gradient();
    flat_gradient(parameters).fill_(7);
    parameters.clear_gradient();
    backward();
    EXPECT_TRUE(at::equal(flat_gradient(parameters), once)) << entry.name;
  }
}

TEST(Parameters, ClearedGradientsAreWrittenAnew) {
  for (const auto& entry : residual::registry()) {
    Decoder model = small_model(small_config(entry.name), at::kFloat);
    Parameters& parameters = model.parameters();
    const auto backward = [&] { model.hidden(some_ids(2, 5, 37)).square().sum().backward(); };
    parameters.gradient();
    backward();
    const Tensor once = flat_gradient(parameters).clone();
    backward();
    EXPECT_TRUE(at::allclose(flat_gradient(parameters), 2 * once, 1e-5, 1e-6)) << "a second backward pass adds";
    parameters.clear_gradient();
    backward();
    EXPECT_TRUE(at::equal(flat_gradient(parameters), once)) << entry.name;
    for (size_t i = 0; i < parameters.specs().size(); ++i) {
      EXPECT_EQ(parameters.view(i).grad().data_ptr(), parameters.part(flat_gradient(parameters), i).data_ptr());
    }
    parameters.clear_gradient();
    EXPECT_EQ(flat_gradient(parameters).count_nonzero().item<int64_t>(), 0) << "nothing was written";
  }
}

// Case 70.
TEST(InitialValues, MatricesAreNormalWithoutScalingByDepth) {
  ModelConfig config = find_scale("100m").model;
  config.design = "mhar", config.vocabulary = 2500;  // 1.28 million numbers in the embedding
  Decoder model(config, at::kFloat, at::kCPU);
  model.parameters().initialise(42);
  for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
    const ParameterSpec& spec = model.parameters().specs()[i];
    const Tensor& value = model.parameters().view(i);
    if (spec.name.ends_with("res_proj.weight")) {
      EXPECT_EQ(value.count_nonzero().item<int64_t>(), 0) << spec.name;
    } else if (spec.shape.size() == 1) {
      EXPECT_TRUE(at::equal(value, at::ones_like(value))) << spec.name;
    } else {
      EXPECT_NEAR(value.mean().item<double>(), 0.0, 2e-4) << spec.name;
      EXPECT_NEAR(value.std().item<double>(), 0.0200, 2e-4) << spec.name;
      EXPECT_NEAR(value.abs().gt(0.04).to(at::kDouble).mean().item<double>(), 0.0455, 0.003)
          << spec.name << ": tails are cut";
    }
  }
}

TEST(InitialValues, OneSeedGivesEveryDesignTheSameStandardPart) {
  std::vector<Tensor> first;
  for (const auto& entry : residual::registry()) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      Decoder model(small_config(entry.name), type, at::kCPU);
      model.parameters().initialise(42);
      const size_t standard = standard_parameters(model.config()).size();
      for (size_t i = 0; i < standard; ++i) {
        const Tensor value = model.parameters().view(i).detach();
        if (first.size() < standard) first.push_back(value.clone());
        EXPECT_TRUE(at::equal(value, first[i].to(type))) << entry.name << ": " << model.parameters().specs()[i].name;
      }
    }
  }
  Decoder other(small_config("standard"), at::kFloat, at::kCPU);
  other.parameters().initialise(43);
  EXPECT_FALSE(at::equal(other.parameters().view(0), first[0]));
}

// Case 11: a new model's queries are 0 and its gains 1, so a read is a plain mean.
TEST(InitialValues, FreshReadsAreMeans) {
  for (const char* design : {"single", "mhar"}) {
    Decoder model(small_config(design), at::kDouble, at::kCPU);
    model.parameters().initialise(42);
    int64_t reads = 0;
    for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
      const std::string& name = model.parameters().specs()[i].name;
      const Tensor& value = model.parameters().view(i);
      if (name.ends_with("res_proj.weight")) {
        EXPECT_TRUE(at::equal(value, at::zeros_like(value))) << name;
      }
      if (name.ends_with("res_norm.weight")) {
        ++reads;
        EXPECT_TRUE(at::equal(value, at::ones_like(value))) << name;
      }
    }
    EXPECT_EQ(reads, 5);
    int64_t seen = 0;
    model.hidden(some_ids(2, 3, 37), nullptr, [&](int64_t site, const Tensor& weights) {
      EXPECT_EQ(site, seen++);
      EXPECT_EQ(weights.sizes(), at::IntArrayRef({site + 1, 6, design == std::string("mhar") ? 2 : 1}));
      EXPECT_TRUE(at::allclose(weights, at::full_like(weights, 1.0 / static_cast<double>(site + 1)), 0, 1e-15));
    });
    EXPECT_EQ(seen, 5);
  }
}

}  // namespace
}  // namespace mhar
