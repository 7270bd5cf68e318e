#include "train/model_folder.h"

#include <fmt/format.h>
#include <torch/torch.h>

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "base/version.h"
#include "checkpoint/store.h"
#include "model/hf_config.h"
#include "model/names.h"
#include "train/state.h"
#include "train/tensor_io.h"

namespace mhar {
namespace {

constexpr size_t kNamed = 8;  // tensors in a message

std::string shape_text(at::IntArrayRef shape) { return c10::str(shape); }

[[noreturn]] void refuse(const fs::path& folder, const std::string& tensor, const std::string& wanted,
                         const std::string& got) {
  throw InputError({"load model", folder.string() + ": " + tensor, wanted, got,
                    "use the checkpoint that belongs to this config.json"});
}

// A head stored beside the tie flag must be the embedding bit for bit; anything else is not one matrix.
void check_tied_head(const checkpoint::ModelFiles& files, const fs::path& folder) {
  const auto head = mapped_tensor(files.entry(names::kHead), files.bytes(names::kHead));
  const auto embedding = mapped_tensor(files.entry(names::kEmbedding), files.bytes(names::kEmbedding));
  if (head.sizes() == embedding.sizes() && head.scalar_type() == embedding.scalar_type() && at::equal(head, embedding))
    return;
  refuse(folder, names::kHead, "the bits of the embedding (tie_word_embeddings is true)", "another matrix");
}

}  // namespace

void save_model(const fs::path& folder, const Decoder& model, const data::Tokenizer& tokenizer) {
  const auto& parameters = model.parameters();
  const std::string type = parameters.type() == at::kBFloat16 ? "bfloat16" : "float32";
  FileWriter config(folder / "config.json");
  config.write(std::string_view(to_config_json(model.config(), type, tokenizer.end_of_text)));
  config.close();
  TensorWriter writer;
  for (size_t i = 0; i < parameters.specs().size(); ++i) writer.add(parameters.specs()[i].name, parameters.view(i));
  writer.write(folder / "model.safetensors", {{"format", "pt"}, {"mhar_version", version()}});
}

void load_parameters(const fs::path& folder, Decoder& model) {
  const checkpoint::ModelFiles files(folder);
  const auto& parameters = model.parameters();
  std::set<std::string> unknown;
  for (const auto& name : files.names()) unknown.insert(name);
  std::vector<std::string> missing;
  for (const auto& spec : parameters.specs()) {
    if (unknown.erase(spec.name) == 0) missing.push_back(spec.name);
  }
  if (model.config().tied && unknown.erase(names::kHead) == 1 && missing.empty()) check_tied_head(files, folder);
  if (!missing.empty()) refuse(folder, "tensors", "all of the model's", "none for " + listed(missing, kNamed));
  if (!unknown.empty())
    refuse(folder, "tensors", "only the model's", "unknown " + listed({unknown.begin(), unknown.end()}, kNamed));
  at::NoGradGuard no_gradient;
  for (size_t i = 0; i < parameters.specs().size(); ++i) {
    const auto& spec = parameters.specs()[i];
    const auto& entry = files.entry(spec.name);
    if (entry.shape != spec.shape)
      refuse(folder, spec.name, "shape " + shape_text(spec.shape), "shape " + shape_text(entry.shape));
    parameters.view(i).detach().copy_(mapped_tensor(entry, files.bytes(spec.name)));
  }
}

std::unique_ptr<Decoder> load_model(const fs::path& folder, at::ScalarType type, at::Device device) {
  checkpoint::check_complete(folder);
  const fs::path config_file = folder / "config.json";
  const ModelConfig config = parse_config_json(read_text(config_file, "load model"), config_file.string());
  if (type == at::ScalarType::Undefined) {
    const checkpoint::ModelFiles files(folder);
    if (!files.has(names::kEmbedding)) refuse(folder, names::kEmbedding, "a tensor of this name", "none");
    type = tensor_type(files.entry(names::kEmbedding).type);
  }
  auto model = std::make_unique<Decoder>(config, type, device);
  load_parameters(folder, *model);
  return model;
}

fs::path find_checkpoint(const fs::path& path) {
  if (fs::exists(path / "config.json")) return path;
  if (fs::is_directory(path / "checkpoints")) {
    std::vector<std::string> skipped;
    if (const auto newest = checkpoint::Store(path / "checkpoints").newest(skipped)) return *newest;
  }
  throw InputError({"open checkpoint", path.string(),
                    "a folder with config.json and model.safetensors, or a run folder with checkpoints",
                    fs::exists(path) ? "a folder or file without them" : "nothing there",
                    "check the path given with --checkpoint"});
}

data::Tokenizer checkpoint_tokenizer(const fs::path& folder, const ModelConfig& config) {
  data::Tokenizer tokenizer;
  if (fs::exists(folder / "state.json")) {
    tokenizer = read_state(folder).tokenizer;
    if (tokenizer.end_of_text < config.vocabulary) return tokenizer;
    throw InputError({"read training state", (folder / "state.json").string(),
                      fmt::format("an end_of_text below the vocabulary of {}", config.vocabulary),
                      std::to_string(tokenizer.end_of_text), "use another checkpoint"});
  }
  tokenizer.kind = "unknown";
  tokenizer.name = "unknown";
  tokenizer.vocabulary = config.vocabulary;
  tokenizer.end_of_text = -1;
  return tokenizer;
}

}  // namespace mhar
