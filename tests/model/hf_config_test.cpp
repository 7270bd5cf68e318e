#include "model/hf_config.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/helpers.h"
#include "reference/rotary.h"
#include "residual/design.h"

namespace mhar {
namespace {

using nlohmann::json;
using namespace mhar::testing;

// As foreign checkpoints have it: what has a default is left out.
json foreign(const std::string& type = "qwen3") {
  return {{"model_type", type},        {"vocab_size", 1000},     {"hidden_size", 1024},
          {"intermediate_size", 3072}, {"num_hidden_layers", 2}, {"num_attention_heads", 16}};
}

ModelConfig parse(const json& object) { return parse_config_json(object.dump(), "m/config.json"); }

void expect_refused(const json& object, std::vector<std::string> parts) {
  const auto message = message_of<InputError>([&] { parse(object); });
  for (const auto& part : parts)
    EXPECT_NE(message.find(part), std::string::npos) << "no '" << part << "' in: " << message;
}

json with(json object, const char* key, const json& value) {
  object[key] = value;
  return object;
}

void expect_same(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.design, b.design);
  EXPECT_EQ(a.vocabulary, b.vocabulary);
  EXPECT_EQ(a.width, b.width);
  EXPECT_EQ(a.layers, b.layers);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.kv_heads, b.kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.ffn, b.ffn);
  EXPECT_EQ(a.sequence, b.sequence);
  EXPECT_EQ(a.norm_eps, b.norm_eps);
  EXPECT_EQ(a.rope_theta, b.rope_theta);
  EXPECT_EQ(a.rope.kind, b.rope.kind);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  EXPECT_EQ(a.rope.low_frequency_factor, b.rope.low_frequency_factor);
  EXPECT_EQ(a.rope.high_frequency_factor, b.rope.high_frequency_factor);
  EXPECT_EQ(a.rope.original_length, b.rope.original_length);
  EXPECT_EQ(a.tied, b.tied);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(make_design(a)->heads(), make_design(b)->heads());
}

TEST(HfConfig, EveryDesignComesBack) {
  for (const auto& entry : residual::registry()) {
    for (const bool other : {false, true}) {
      SCOPED_TRACE(entry.name);
      ModelConfig config = small_config(entry.name);
      if (other) {
        config.tied = false, config.qk_norm = false, config.routing_heads = 8, config.norm_eps = 1e-5;
        config.rope_theta = 5e5, config.rope = {"llama3", 8.0, 1.0, 4.0, 4096};
      }
      const std::string text = to_config_json(config, "bfloat16", 36);
      expect_same(config, parse_config_json(text, "config.json"));
      const json object = json::parse(text);
      const std::string family = other ? "llama" : "qwen3";
      EXPECT_EQ(object["model_type"], entry.name == "standard" ? family : family + "_attnres");
      EXPECT_EQ(object["dtype"], "bfloat16");
      EXPECT_EQ(object["eos_token_id"], 36);
      EXPECT_EQ(object.contains("attnres_mode"), entry.name != "standard");
    }
  }
}

TEST(HfConfig, LinearScalingComesBack) {
  ModelConfig config = small_config("standard");
  config.rope.kind = "linear", config.rope.factor = 4.0;
  expect_same(config, parse_config_json(to_config_json(config, "float32", 36), "config.json"));
}

TEST(HfConfig, DefaultsAreTheMethods) {
  const ModelConfig c = parse(foreign());
  EXPECT_EQ(c.design, "standard");
  EXPECT_EQ(c.kv_heads, 16);
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.norm_eps, 1e-6);
  EXPECT_EQ(c.rope_theta, 1e4);
  EXPECT_EQ(c.rope.kind, "default");
  EXPECT_FALSE(c.tied);
  EXPECT_TRUE(c.qk_norm);
  EXPECT_FALSE(parse(foreign("llama")).qk_norm);
  EXPECT_EQ(parse(with(foreign(), "rope_scaling", nullptr)).rope.kind, "default");
}

// Case 63.
TEST(HfConfig, HeadDimensionIsTakenAsWritten) {
  json object = foreign();
  object["num_key_value_heads"] = 8, object["head_dim"] = 128;
  EXPECT_EQ(parse(object).head_dim, 128);
}

// Case 65: the base flat and nested.
TEST(HfConfig, RotaryBase) {
  const json flat = with(foreign(), "rope_theta", 1e6);
  const json nested = with(foreign(), "rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1000000}});
  const json both = with(nested, "rope_theta", 1e4);
  for (json object : {flat, nested, both}) {
    object["head_dim"] = 128;
    EXPECT_NEAR(inverse_frequencies(parse(object))[1].item<double>(), 0.805842, 1e-6) << object;
  }
  EXPECT_NEAR(inverse_frequencies(parse(with(foreign(), "head_dim", 128)))[1].item<double>(), 0.865964, 1e-6);
}

// Case 65: scalings, against the reference; the older key names too.
TEST(HfConfig, RotaryScaling) {
  using reference::RotaryScaling;
  const json llama3{{"rope_type", "llama3"},
                    {"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
  json newer = with(foreign("llama"), "rope_parameters", with(llama3, "rope_theta", 5e5));
  json older = with(with(foreign("llama"), "rope_scaling", llama3), "rope_theta", 500000);
  const auto exact =
      reference::inverse_frequencies<double>(128, 5e5, {RotaryScaling::Kind::llama3, 8.0, 1.0, 4.0, 8192});
  for (json object : {newer, older}) {
    object["head_dim"] = 128;
    const at::Tensor got = inverse_frequencies(parse(object));
    for (size_t j = 0; j < exact.size(); ++j) EXPECT_NEAR(got[j].item<double>() / exact[j], 1.0, 1e-12) << j;
    EXPECT_NEAR(got[63].item<double>() * 8, std::pow(5e5, -126.0 / 128), 1e-12)
        << "the slowest turn is slowed by the factor";
  }
  const json linear = with(with(foreign(), "head_dim", 128), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}});
  const auto half = reference::inverse_frequencies<double>(128, 1e4, {RotaryScaling::Kind::linear, 2.0});
  for (size_t j = 0; j < half.size(); ++j)
    EXPECT_DOUBLE_EQ(inverse_frequencies(parse(linear))[j].item<double>(), half[j]);
}

TEST(HfConfig, UnknownOrIncompleteScalingIsRefused) {
  expect_refused(with(foreign(), "rope_scaling", {{"type", "yarn"}, {"factor", 4.0}}),
                 {"m/config.json", "rope_type", "'yarn'", "llama3"});
  expect_refused(with(foreign(), "rope_parameters", "linear"), {"rope_parameters", "an object"});
  expect_refused(with(foreign(), "rope_scaling", {{"type", "linear"}}), {"rope_scaling", "factor", "nothing"});
  expect_refused(with(foreign(), "rope_scaling", {{"type", "llama3"}, {"factor", 8.0}}),
                 {"rope_scaling", "low_freq_factor", "nothing"});
  expect_refused(with(foreign(), "rope_scaling", {{"type", "linear"}, {"factor", 0.5}}), {"factor", "0.5"});
}

TEST(HfConfig, MissingAndMistypedKeysAreNamed) {
  for (const char* key :
       {"model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    json object = foreign();
    object.erase(key);
    expect_refused(object, {"m/config.json", key, "add the key"});
  }
  expect_refused(with(foreign(), "hidden_size", "1024"), {"hidden_size", "a whole number", "\"1024\""});
  expect_refused(with(foreign(), "hidden_size", 1024.5), {"hidden_size", "a whole number"});
  expect_refused(with(foreign(), "tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"});
  expect_refused(with(foreign(), "rms_norm_eps", "tiny"), {"rms_norm_eps", "a number"});
  expect_refused(with(foreign(), "num_key_value_heads", 5), {"kv-heads", "16", "5"});
  for (const char* text : {"", "{", "[1]", "\"text\""}) {
    const auto message = message_of<InputError>([&] { parse_config_json(text, "m/config.json"); });
    EXPECT_NE(message.find("a JSON object"), std::string::npos) << message;
  }
}

TEST(HfConfig, WhatIsNotSupportedIsRefused) {
  expect_refused(with(foreign(), "model_type", "gpt2"), {"model_type", "'gpt2'", "qwen3_attnres"});
  expect_refused(with(foreign(), "attention_bias", true), {"attention_bias", "false"});
  expect_refused(with(foreign("llama"), "mlp_bias", true), {"mlp_bias"});
  expect_refused(with(foreign(), "use_sliding_window", true), {"use_sliding_window"});
  expect_refused(with(foreign(), "sliding_window", 4096), {"sliding_window", "4096"});
  expect_refused(with(foreign(), "layer_types", {"full_attention", "sliding_attention"}),
                 {"layer_types", "sliding_attention"});
  expect_refused(with(foreign(), "hidden_act", "gelu"), {"hidden_act", "'gelu'"});
  // What Qwen3 checkpoints carry without using it.
  json harmless = with(with(foreign(), "use_sliding_window", false), "sliding_window", 4096);
  harmless["layer_types"] = {"full_attention", "full_attention"}, harmless["attention_bias"] = false;
  EXPECT_EQ(parse(harmless).layers, 2);
}

TEST(HfConfig, DesignKeysStandOnlyWhereTheyMeanSomething) {
  expect_refused(with(foreign(), "attnres_mode", "full"), {"attnres_mode", "qwen3_attnres"});
  expect_refused(with(foreign("llama"), "attnres_num_heads", 4), {"attnres_num_heads"});
  expect_refused(foreign("qwen3_attnres"), {"attnres_mode", "add the key"});
  const json full = with(foreign("qwen3_attnres"), "attnres_mode", "full_mh");
  EXPECT_EQ(parse(full).design, "mhar");
  expect_refused(with(full, "attnres_mode", "half"), {"attnres_mode", "'half'", "full_mh"});
  expect_refused(with(full, "attnres_use_null_source", true), {"attnres_use_null_source"});
  expect_refused(with(full, "attnres_num_heads", 3), {"3", "1024"});
}

}  // namespace
}  // namespace mhar
