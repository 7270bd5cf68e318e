#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/parameter.h"
#include "config/model_config.h"

namespace mhar {

/// Hugging Face's names of the standard part of a decoder (Qwen3 and Llama alike).
namespace names {
inline constexpr const char* kEmbedding = "model.embed_tokens.weight";
inline constexpr const char* kFinalNorm = "model.norm.weight";
inline constexpr const char* kHead = "lm_head.weight";
// within model.layers.N.
inline constexpr const char* kAttentionNorm = "input_layernorm.weight";
inline constexpr const char* kMlpNorm = "post_attention_layernorm.weight";
inline constexpr const char* kQuery = "self_attn.q_proj.weight";
inline constexpr const char* kKey = "self_attn.k_proj.weight";
inline constexpr const char* kValue = "self_attn.v_proj.weight";
inline constexpr const char* kAttentionOutput = "self_attn.o_proj.weight";
inline constexpr const char* kQueryNorm = "self_attn.q_norm.weight";
inline constexpr const char* kKeyNorm = "self_attn.k_norm.weight";
inline constexpr const char* kGate = "mlp.gate_proj.weight";
inline constexpr const char* kUp = "mlp.up_proj.weight";
inline constexpr const char* kDown = "mlp.down_proj.weight";

/// "model.layers.N.name".
std::string in_layer(int64_t layer, const char* name);
}  // namespace names

/// "model.layers.N." of such a name, of others nothing.
std::string_view block_of(std::string_view name);

/// The standard part's parameters in their fixed order: matrices N(0, 0.02^2) without scaling by depth, gains at one.
/// Query, key and value matrices stand side by side, and so do gate and up, so that each group is one matrix in memory.
std::vector<ParameterSpec> standard_parameters(const ModelConfig& config);

}  // namespace mhar
