#pragma once
#include <string>

#include "config/model_config.h"

namespace mhar {

/// The text of a checkpoint's config.json (docs/method.md, section 12): a plain Qwen3 or Llama configuration for a
/// design without keys of its own, *_attnres with them otherwise. `type` is the parameters' type, "float32" or
/// "bfloat16".
std::string to_config_json(const ModelConfig& config, const std::string& type, int64_t end_of_text);

/// Reads config.json back, or a foreign one of the model types above. Throws InputError naming the key for what is
/// missing, of a wrong type, or not supported (biases, sliding windows, other activations, unknown rope types).
/// `origin` is the file's path in messages.
ModelConfig parse_config_json(const std::string& text, const std::string& origin);

}  // namespace mhar
