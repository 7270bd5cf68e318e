#pragma once
#include "model/decoder.h"
#include "ops/helpers.h"

namespace mhar::testing {

/// A model small enough for loops: every dimension different, grouped queries, depth reads with two heads.
inline ModelConfig small_config(const std::string& design, int64_t layers = 2) {
  ModelConfig c;
  c.design = design;
  c.vocabulary = 37, c.width = 16, c.layers = layers;
  c.heads = 4, c.kv_heads = 2, c.head_dim = 6, c.ffn = 24, c.sequence = 32;
  return c;
}

/// Its parameters are far from their starting values, so that every part of the model takes part.
inline Decoder small_model(const ModelConfig& config, at::ScalarType type = at::kDouble, double deviation = 0.15) {
  Decoder model(config, type, at::kCPU);
  model.parameters().initialise(7);
  const at::NoGradGuard no_gradient;
  for (size_t i = 0; i < model.parameters().specs().size(); ++i) {
    const at::Tensor& view = model.parameters().view(i);
    view.add_(normal(view.sizes(), 1000 + i, type, deviation));
  }
  return model;
}

/// The whole gradient of a model whose gradient is one piece.
inline at::Tensor flat_gradient(Parameters& parameters) {
  const auto& pieces = parameters.gradient();
  EXPECT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].values.sizes(), parameters.flat().sizes());
  return pieces[0].values;
}

inline at::Tensor some_ids(int64_t batch, int64_t tokens, int64_t vocabulary) {
  return at::arange(batch * tokens, at::kLong).mul(11).add(3).remainder(vocabulary).view({batch, tokens});
}

}  // namespace mhar::testing
