#pragma once
#include <memory>
#include <string>

#include "base/file.h"
#include "data/manifest.h"
#include "model/decoder.h"

namespace mhar {

/// Writes config.json and model.safetensors, a Hugging Face model folder as it stands, into an existing folder.
void save_model(const fs::path& folder, const Decoder& model, const data::Tokenizer& tokenizer);

/// Opens a model folder, ours or Hugging Face's (one file or shards with an index). Tensors are converted to `type`, or
/// keep the stored type of the embedding when `type` is Undefined. Throws InputError naming every tensor that is
/// missing or unknown, of another shape, or a stored head that differs from the embedding it is tied to.
std::unique_ptr<Decoder> load_model(const fs::path& folder, at::ScalarType type, at::Device device);

/// Copies the stored tensors over the parameters of `model`, with the same checks.
void load_parameters(const fs::path& folder, Decoder& model);

/// The folder itself, or for a run folder its newest checkpoint: what --checkpoint takes. Throws InputError when
/// neither.
fs::path find_checkpoint(const fs::path& path);

/// The tokenizer a checkpoint was trained with, from its state.json; a foreign model folder has none: kind "unknown",
/// vocabulary and end-of-text as config.json says.
data::Tokenizer checkpoint_tokenizer(const fs::path& folder, const ModelConfig& config);

}  // namespace mhar
