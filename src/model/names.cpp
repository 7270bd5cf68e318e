#include "model/names.h"

#include <fmt/format.h>

namespace mhar {

std::string names::in_layer(int64_t layer, const char* name) { return fmt::format("model.layers.{}.{}", layer, name); }

std::string_view block_of(std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  const size_t dot = name.starts_with(kLayers) ? name.find('.', kLayers.size()) : std::string_view::npos;
  return dot == std::string_view::npos ? std::string_view() : name.substr(0, dot + 1);
}

std::vector<ParameterSpec> standard_parameters(const ModelConfig& c) {
  std::vector<ParameterSpec> all;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    all.push_back({name, {rows, columns}, {Initial::Pattern::zeros, 0.02}});
  };
  const auto gain = [&](const std::string& name, int64_t width) {
    all.push_back({name, {width}, {Initial::Pattern::ones, 0.0}});
  };
  matrix(names::kEmbedding, c.vocabulary, c.width);
  for (int64_t layer = 0; layer < c.layers; ++layer) {
    const auto in = [&](const char* name) { return names::in_layer(layer, name); };
    const int64_t queries = c.heads * c.head_dim, keys = c.kv_heads * c.head_dim;
    gain(in(names::kAttentionNorm), c.width);
    matrix(in(names::kQuery), queries, c.width);
    matrix(in(names::kKey), keys, c.width);
    matrix(in(names::kValue), keys, c.width);
    if (c.qk_norm) {
      gain(in(names::kQueryNorm), c.head_dim);
      gain(in(names::kKeyNorm), c.head_dim);
    }
    matrix(in(names::kAttentionOutput), c.width, queries);
    gain(in(names::kMlpNorm), c.width);
    matrix(in(names::kGate), c.ffn, c.width);
    matrix(in(names::kUp), c.ffn, c.width);
    matrix(in(names::kDown), c.width, c.ffn);
  }
  gain(names::kFinalNorm, c.width);
  if (!c.tied) matrix(names::kHead, c.vocabulary, c.width);
  return all;
}

}  // namespace mhar
