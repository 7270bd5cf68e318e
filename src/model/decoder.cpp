#include "model/decoder.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <algorithm>

#include "base/error.h"
#include "model/names.h"
#include "ops/linear_into.h"
#include "ops/rms_norm.h"

namespace mhar {
namespace {

using at::Tensor;

Tensor append(std::vector<Tensor>& cache, int64_t layer, const Tensor& fresh) {
  if (static_cast<int64_t>(cache.size()) <= layer) cache.resize(layer + 1);
  cache[layer] = cache[layer].defined() ? at::cat({cache[layer], fresh}, 1) : fresh;
  return cache[layer];
}

// A sublayer's output projection, in place where the design wants it.
Tensor project(const Tensor& x, const Tensor& weight, const Tensor& slot) {
  return slot.defined() ? ops::linear_into(x, weight, slot) : at::linear(x, weight);
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

Tensor Decoder::head() const { return parameters_->get(config_.tied ? names::kEmbedding : names::kHead); }

Tensor Decoder::weight(int64_t layer, const char* name) const { return parameters_->get(names::in_layer(layer, name)); }

const ops::RotaryTable& Decoder::rotary(int64_t length) const {
  if (!rotary_.cosine.defined() || rotary_.cosine.size(0) < length) {
    const int64_t size = std::max<int64_t>({length, config_.sequence, 1});
    rotary_ = ops::rotary_table(inverse_frequencies(config_), size, parameters_->type(), parameters_->device());
  }
  return rotary_;
}

Tensor Decoder::attention(int64_t layer, const Tensor& x, int64_t batch, KvCache* cache) const {
  const int64_t tokens = x.size(0) / std::max<int64_t>(batch, 1), first = cache ? cache->length : 0;
  const auto project = [&](const char* name, int64_t heads) {
    return at::linear(x, weight(layer, name)).view({batch, tokens, heads, config_.head_dim});
  };
  Tensor q = project(names::kQuery, config_.heads), k = project(names::kKey, config_.kv_heads);
  Tensor v = project(names::kValue, config_.kv_heads);
  if (config_.qk_norm) {
    q = ops::rms_norm(q, weight(layer, names::kQueryNorm), config_.norm_eps);
    k = ops::rms_norm(k, weight(layer, names::kKeyNorm), config_.norm_eps);
  }
  const auto& table = rotary(first + tokens);
  q = ops::rotate(q, table, first);
  k = ops::rotate(k, table, first);
  if (cache) {
    k = append(cache->keys, layer, k);
    v = append(cache->values, layer, v);
  }
  return ops::attention(q, k, v).view({x.size(0), config_.heads * config_.head_dim});
}

Tensor Decoder::mlp(int64_t layer, const Tensor& x) const {
  const Tensor gate = at::linear(x, weight(layer, names::kGate)), up = at::linear(x, weight(layer, names::kUp));
  return at::silu(gate) * up;
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
  pass->start(at::embedding(parameters_->get(names::kEmbedding), ids).view({batch * tokens, config_.width}));
  for (int64_t layer = 0; layer < config_.layers; ++layer) {
    const int64_t site = 2 * layer;
    const Tensor mixed = attention(layer, pass->read(site), batch, cache);
    pass->write(site, project(mixed, weight(layer, names::kAttentionOutput), pass->slot(site)));
    const Tensor inner = mlp(layer, pass->read(site + 1));
    pass->write(site + 1, project(inner, weight(layer, names::kDown), pass->slot(site + 1)));
  }
  if (cache) cache->length += tokens;
  return pass->read(2 * config_.layers);
}

}  // namespace mhar
