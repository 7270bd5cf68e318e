#include "model/decoder.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "model/names.h"
#include "ops/embedding.h"
#include "ops/qk_rope.h"
#include "ops/swiglu.h"

namespace mhar {
namespace {

using at::Tensor;

Tensor append(std::vector<Tensor>& cache, int64_t layer, const Tensor& fresh) {
  if (static_cast<int64_t>(cache.size()) <= layer) cache.resize(layer + 1);
  cache[layer] = cache[layer].defined() ? at::cat({cache[layer], fresh}, 1) : fresh;
  return cache[layer];
}

}  // namespace

std::unique_ptr<residual::Design> make_design(const ModelConfig& c) {
  return residual::find(c.design).make({.width = c.width,
                                        .layers = c.layers,
                                        .heads = c.routing_heads,
                                        .kv_heads = c.kv_heads,
                                        .eps = c.norm_eps,
                                        .composed_reads = c.composed_reads,
                                        .read_chunk = c.read_chunk});
}

std::vector<ParameterSpec> Decoder::specs(const ModelConfig& config) {
  std::vector<ParameterSpec> all = standard_parameters(config);
  // After the standard part, so that this part starts with the same values under every design.
  for (auto& spec : make_design(config)->parameters()) all.push_back(std::move(spec));
  return all;
}

Decoder::Decoder(const ModelConfig& config, at::ScalarType type, at::Device device) : config_(config) {
  validate(config_);
  design_ = make_design(config_);
  parameters_ = std::make_unique<Parameters>(specs(config_), type, device);
  design_->bind([this](const std::string& name) { return parameters_->get(name); });
}

ops::LinearWeight Decoder::head() const { return matrix(config_.tied ? names::kEmbedding : names::kHead); }

Tensor Decoder::weight(int64_t layer, const char* name) const { return parameters_->get(names::in_layer(layer, name)); }

const ops::RotaryTable& Decoder::rotary(int64_t length) const {
  if (rotary_.empty() || rotary_.back().cosine.size(0) < length) {
    const int64_t size = std::max<int64_t>({length, config_.sequence, 1});
    rotary_.push_back(
        ops::rotary_table(inverse_frequencies(config_), size, parameters_->type(), parameters_->device()));
  }
  return rotary_.back();
}

ops::LinearWeight Decoder::matrix(const std::string& name) const {
  return {parameters_->get(name), parameters_->gradient_place(name)};
}

ops::LinearWeight Decoder::matrix(int64_t layer, const char* name) const {
  return matrix(names::in_layer(layer, name));
}

Tensor Decoder::attention(int64_t layer, const Tensor& x, int64_t batch, KvCache* cache) const {
  const int64_t tokens = x.size(0) / std::max<int64_t>(batch, 1), first = cache ? cache->length : 0;
  const Tensor projection =
      ops::linear(x, {matrix(layer, names::kQuery), matrix(layer, names::kKey), matrix(layer, names::kValue)});
  ops::HeadNorms norms;
  if (config_.qk_norm) {
    norms = {weight(layer, names::kQueryNorm), weight(layer, names::kKeyNorm), config_.norm_eps};
  }
  auto [q, k, v] = ops::qk_rope(projection, {batch, tokens, config_.heads, config_.kv_heads, config_.head_dim}, norms,
                                rotary(first + tokens), first);
  if (cache) {
    k = append(cache->keys, layer, k);
    v = append(cache->values, layer, v);
  }
  return ops::attention(q, k, v).view({x.size(0), config_.heads * config_.head_dim});
}

Tensor Decoder::mlp(int64_t layer, const Tensor& x, const Tensor& slot) const {
  const Tensor gate_up = ops::linear(x, {matrix(layer, names::kGate), matrix(layer, names::kUp)});
  return ops::swiglu_linear(gate_up, matrix(layer, names::kDown), slot);
}

Tensor Decoder::hidden(const Tensor& ids, KvCache* cache, const residual::RoutingObserver& observer) const {
  const int64_t batch = ids.size(0), tokens = ids.size(1);
  if (cache && cache->length > 0 && tokens > 1) {
    throw std::invalid_argument(
        describe({"Decoder::hidden", "ids", "one token after a filled cache", fmt::format("{} tokens", tokens),
                  "feed the tokens one at a time, or start with an empty cache"}));
  }
  residual::Norms norms;
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    norms.push_back(weight(layer, names::kAttentionNorm));
    norms.push_back(weight(layer, names::kMlpNorm));
  }
  norms.push_back(parameters_->get(names::kFinalNorm));
  auto pass = design_->begin(std::move(norms), observer);
  pass->start(ops::embedding(matrix(names::kEmbedding), ids.reshape({-1})));
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const int64_t site = 2 * layer;
    const Tensor mixed = attention(layer, pass->read(site), batch, cache);
    pass->write(site, ops::linear(mixed, {matrix(layer, names::kAttentionOutput)}, pass->slot(site)));
    const Tensor inner = pass->read(site + 1);
    pass->write(site + 1, mlp(layer, inner, pass->slot(site + 1)));
  }
  if (cache) cache->length += tokens;
  return pass->read(2 * config_.layers);
}

}  // namespace mhar
