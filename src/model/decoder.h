#pragma once
#include <ATen/ATen.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "config/model_config.h"
#include "model/parameters.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "residual/design.h"

namespace mhar {

/// Keys and values of the tokens seen so far, one pair a layer, [B, S, kv_heads, head_dim]. For generation.
struct KvCache {
  std::vector<at::Tensor> keys, values;
  int64_t length = 0;  ///< positions held
};

/// The decoder-only Transformer of docs/method.md (sections 3 to 9). Letters: B windows of T tokens, P = B T, D width,
/// V vocabulary. A block never knows which residual design it is in.
class Decoder {
 public:
  /// Validates `config`, then allocates zeroed parameters; initialise() or a checkpoint fills them.
  Decoder(const ModelConfig& config, at::ScalarType type, at::Device device);

  /// Final hidden states after the last norm, [P, D], of ids [B, T] (int64, on the model's device). With a cache, ids
  /// continue it; more than one token only into an empty cache.
  at::Tensor hidden(const at::Tensor& ids, KvCache* cache = nullptr,
                    const residual::RoutingObserver& observer = {}) const;
  /// Logits [P, V] of hidden states [P, D].
  at::Tensor logits(const at::Tensor& hidden) const { return hidden.mm(head().value.t()); }
  /// The output head's matrix [V, D], and where its gradient belongs.
  ops::LinearWeight head() const;

  const ModelConfig& config() const { return config_; }
  const residual::Design& design() const { return *design_; }
  Parameters& parameters() { return *parameters_; }
  const Parameters& parameters() const { return *parameters_; }

  /// Names, shapes and starting values of a configuration's parameters in their fixed order, without allocating.
  static std::vector<ParameterSpec> specs(const ModelConfig& config);

 private:
  // Up to its output projection, which hidden() applies.
  at::Tensor attention(int64_t layer, const at::Tensor& x, int64_t batch, KvCache* cache) const;
  // The whole sublayer, written into `slot` where that is defined.
  at::Tensor mlp(int64_t layer, const at::Tensor& x, const at::Tensor& slot) const;
  at::Tensor weight(int64_t layer, const char* name) const;
  ops::LinearWeight matrix(const std::string& name) const;
  ops::LinearWeight matrix(int64_t layer, const char* name) const;
  const ops::RotaryTable& rotary(int64_t length) const;

  ModelConfig config_;
  std::unique_ptr<residual::Design> design_;
  std::unique_ptr<Parameters> parameters_;
  mutable std::deque<ops::RotaryTable> rotary_;  // the last is of the longest sequence seen; recordings use the others
};

/// The design object a configuration asks for. Throws InputError for an unknown design or heads that do not divide.
std::unique_ptr<residual::Design> make_design(const ModelConfig& config);

/// Inverse rotary frequencies [head_dim / 2] (double, CPU), stretched as config.rope says (Eq. 11 to 13).
at::Tensor inverse_frequencies(const ModelConfig& config);

}  // namespace mhar
