#include "model/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/decoder.h"

namespace mhar {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& origin, const std::string& key, const std::string& wanted,
                         const std::string& got, const std::string& remedy) {
  throw InputError({"read config.json", origin + ": " + key, wanted, got, remedy});
}

const char* kOther = "convert the checkpoint, or use another one";

// Typed look-ups that name the key when it is missing or of another type.
class Keys {
 public:
  Keys(const json& object, std::string origin) : object_(object), origin_(std::move(origin)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  template <typename T>
  T get(const char* key) const {
    if (!has(key)) refuse(origin_, key, "a value", "nothing", "add the key; it has no default");
    return as<T>(key);
  }

  template <typename T>
  T get(const char* key, T fallback) const {
    return has(key) ? as<T>(key) : fallback;
  }

  const json& object() const { return object_; }

 private:
  template <typename T>
  T as(const char* key) const {
    const json& value = object_[key];
    const bool right = std::is_same_v<T, bool>          ? value.is_boolean()
                       : std::is_same_v<T, std::string> ? value.is_string()
                       : std::is_integral_v<T>          ? value.is_number_integer()
                                                        : value.is_number();
    const char* wanted = std::is_same_v<T, bool>          ? "true or false"
                         : std::is_same_v<T, std::string> ? "a string"
                         : std::is_integral_v<T>          ? "a whole number"
                                                          : "a number";
    if (!right) refuse(origin_, key, wanted, value.dump(), "correct the value");
    return value.get<T>();
  }

  const json& object_;
  std::string origin_;
};

// The rotary base and stretch stand flat, or nested in rope_parameters (or the older rope_scaling); nested wins.
void read_rope(const Keys& keys, const std::string& origin, ModelConfig& config) {
  config.rope_theta = keys.get<double>("rope_theta", 1e4);
  for (const char* name : {"rope_scaling", "rope_parameters"}) {
    if (!keys.has(name)) continue;
    if (!keys.object()[name].is_object())
      refuse(origin, name, "an object", keys.object()[name].dump(), "correct the value");
    const Keys nested(keys.object()[name], origin + ": " + name);
    config.rope_theta = nested.get<double>("rope_theta", config.rope_theta);
    config.rope.kind = nested.get<std::string>("rope_type", nested.get<std::string>("type", "default"));
    if (config.rope.kind != "default" && config.rope.kind != "linear" && config.rope.kind != "llama3") {
      refuse(origin, std::string(name) + ".rope_type", "default, linear or llama3", "'" + config.rope.kind + "'",
             kOther);
    }
    // A stretch without its numbers would be none at all: they have no defaults.
    if (config.rope.kind != "default") config.rope.factor = nested.get<double>("factor");
    if (config.rope.kind != "llama3") continue;
    config.rope.low_frequency_factor = nested.get<double>("low_freq_factor");
    config.rope.high_frequency_factor = nested.get<double>("high_freq_factor");
    config.rope.original_length = nested.get<int64_t>("original_max_position_embeddings");
  }
}

void read_design(const Keys& keys, const std::string& origin, bool depth, ModelConfig& config) {
  if (!depth) {
    for (const auto& item : keys.object().items()) {
      if (item.key().starts_with("attnres_")) {
        refuse(origin, item.key(), "no attnres_ key beside this model_type", item.value().dump(),
               "use model_type qwen3_attnres or llama_attnres, or remove the key");
      }
    }
    config.design = residual::find_mode("").name;
    return;
  }
  config.design = residual::find_mode(keys.get<std::string>("attnres_mode")).name;
  config.routing_heads = keys.get<int64_t>("attnres_num_heads", 0);
  if (keys.get<bool>("attnres_use_null_source", false)) {
    refuse(origin, "attnres_use_null_source", "false for this attnres_mode", "true", kOther);
  }
}

void refuse_unsupported(const Keys& keys, const std::string& origin) {
  for (const char* name : {"attention_bias", "mlp_bias", "use_sliding_window"}) {
    if (keys.get<bool>(name, false)) refuse(origin, name, "false", "true", kOther);
  }
  if (keys.has("sliding_window") && !keys.has("use_sliding_window")) {
    refuse(origin, "sliding_window", "none", keys.object()["sliding_window"].dump(), kOther);
  }
  if (keys.has("layer_types")) {
    const json& types = keys.object()["layer_types"];
    const auto full = [](const json& type) { return type == "full_attention"; };
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), full)) {
      refuse(origin, "layer_types", "full_attention in every layer", types.dump(), kOther);
    }
  }
  const std::string activation = keys.get<std::string>("hidden_act", "silu");
  if (activation != "silu") refuse(origin, "hidden_act", "silu", "'" + activation + "'", kOther);
}

}  // namespace

std::string to_config_json(const ModelConfig& c, const std::string& type, int64_t end_of_text) {
  json extra = json::object();
  make_design(c)->describe(extra);
  const std::string family = c.qk_norm ? "qwen3" : "llama";
  json out = extra;
  out["model_type"] = extra.empty() ? family : family + "_attnres";
  out["architectures"] = {std::string(c.qk_norm ? "Qwen3" : "Llama") + (extra.empty() ? "" : "AttnRes") +
                          "ForCausalLM"};
  out["vocab_size"] = c.vocabulary;
  out["hidden_size"] = c.width;
  out["intermediate_size"] = c.ffn;
  out["num_hidden_layers"] = c.layers;
  out["num_attention_heads"] = c.heads;
  out["num_key_value_heads"] = c.kv_heads;
  out["head_dim"] = c.head_dim;
  out["max_position_embeddings"] = c.sequence;
  out["rms_norm_eps"] = c.norm_eps;
  out["tie_word_embeddings"] = c.tied;
  out["hidden_act"] = "silu";
  out["attention_bias"] = false;
  out["attention_dropout"] = 0.0;
  out["initializer_range"] = 0.02;
  out["dtype"] = type;
  out["eos_token_id"] = end_of_text;
  out["rope_theta"] = c.rope_theta;
  json rope = {{"rope_type", c.rope.kind}, {"rope_theta", c.rope_theta}};
  if (c.rope.kind != "default") rope["factor"] = c.rope.factor;
  if (c.rope.kind == "llama3") {
    rope["low_freq_factor"] = c.rope.low_frequency_factor;
    rope["high_freq_factor"] = c.rope.high_frequency_factor;
    rope["original_max_position_embeddings"] = c.rope.original_length;
  }
  out["rope_parameters"] = rope;
  return out.dump(2) + "\n";
}

ModelConfig parse_config_json(const std::string& text, const std::string& origin) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) refuse(origin, "file", "a JSON object", "something else", "restore the file");
  const Keys keys(object, origin);
  const auto kind = keys.get<std::string>("model_type");
  const bool depth = kind.ends_with("_attnres");
  const std::string family = depth ? kind.substr(0, kind.size() - 8) : kind;
  if (family != "qwen3" && family != "llama") {
    refuse(origin, "model_type", "qwen3, llama, qwen3_attnres or llama_attnres", "'" + kind + "'", kOther);
  }
  ModelConfig c;
  c.qk_norm = family == "qwen3";
  c.vocabulary = keys.get<int64_t>("vocab_size");
  c.width = keys.get<int64_t>("hidden_size");
  c.ffn = keys.get<int64_t>("intermediate_size");
  c.layers = keys.get<int64_t>("num_hidden_layers");
  c.heads = keys.get<int64_t>("num_attention_heads");
  c.kv_heads = keys.get<int64_t>("num_key_value_heads", c.heads);
  c.head_dim = keys.get<int64_t>("head_dim", c.heads > 0 ? c.width / c.heads : 0);
  c.sequence =
      keys.get<int64_t>("max_position_embeddings", family == "qwen3" ? 32768 : 2048);  // Hugging Face's defaults
  c.norm_eps = keys.get<double>("rms_norm_eps", 1e-6);
  c.tied = keys.get<bool>("tie_word_embeddings", false);
  read_rope(keys, origin, c);
  refuse_unsupported(keys, origin);
  read_design(keys, origin, depth, c);
  validate(c);
  return c;
}

}  // namespace mhar
