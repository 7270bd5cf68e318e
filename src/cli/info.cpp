#include <fmt/format.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/replace.h"
#include "base/version.h"
#include "checkpoint/store.h"
#include "cli/commands.h"
#include "config/options.h"
#include "data/manifest.h"
#include "model/hf_config.h"
#include "ops/device.h"
#include "train/model_folder.h"
#include "train/state.h"

namespace mhar::cli {
namespace {

using nlohmann::json;

struct Options {
  std::string path, scale, design;
  bool json = false;
};

json describe_model(const ModelConfig& c) {
  int64_t parameters = 0;
  for (const auto& spec : Decoder::specs(c)) parameters += spec.count();
  return {{"design", c.design},
          {"parameters", parameters},
          {"vocabulary", c.vocabulary},
          {"width", c.width},
          {"layers", c.layers},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"ffn", c.ffn},
          {"sequence", c.sequence},
          {"routing_heads", make_design(c)->heads()},
          {"tied", c.tied}};
}

json describe_checkpoint(const fs::path& folder) {
  const fs::path config = folder / "config.json";
  const ModelConfig model = parse_config_json(read_text(config, "read checkpoint"), config.string());
  json out = describe_model(model);
  out["kind"] = "checkpoint";
  out["path"] = folder.string();
  if (!fs::exists(folder / "state.json")) return out;
  const TrainState state = read_state(folder);
  out["step"] = state.step;
  out["tokens"] = state.tokens;
  out["scale"] = state.config.scale;
  out["seed"] = state.config.seed;
  out["precision"] = state.config.precision;
  out["threads"] = state.threads;
  out["tokenizer"] = state.tokenizer.name;
  out["data_hash"] = state.data_hash;
  out["program"] = state.program;
  if (!state.validations.empty()) out["validation_loss"] = state.validations.back().second;
  return out;
}

json describe_run(const fs::path& folder) {
  RunConfig config;
  read_toml((folder / "config.toml").string(), config);
  json out = {{"kind", "run"},         {"path", folder.string()}, {"design", config.design},
              {"scale", config.scale}, {"steps", config.steps},   {"data", config.data}};
  std::vector<std::string> skipped;
  const auto newest = checkpoint::Store(folder / "checkpoints").newest(skipped);
  if (newest) out["checkpoint"] = describe_checkpoint(*newest);
  return out;
}

json describe_shards(const fs::path& prefix) {
  json out = json::parse(data::to_json(data::read_manifest(prefix)));
  out["kind"] = "shards";
  out["path"] = prefix.string();
  return out;
}

json describe_machine() {
  const bool cuda = ops::built_with_cuda();
  return {{"kind", "machine"},
          {"version", version()},
          {"torch", TORCH_VERSION},
          {"cuda_kernels", cuda},
          {"cuda_devices", cuda && torch::cuda::is_available() ? static_cast<int64_t>(torch::cuda::device_count()) : 0},
          {"cores", std::thread::hardware_concurrency()}};
}

json describe(const Options& options) {
  if (!options.scale.empty()) {
    ModelConfig model = find_scale(options.scale).model;
    model.design = options.design.empty() ? RunConfig().design : options.design;
    json out = describe_model(model);
    out["kind"] = "scale";
    return out;
  }
  const fs::path path = options.path;
  if (path.empty()) return describe_machine();
  if (fs::exists(path / "config.json")) return describe_checkpoint(path);
  if (fs::exists(path / "config.toml")) return describe_run(path);
  const Place place = place_of(path, "info");
  const fs::path beside = place.parent / (place.name + ".json");
  if (path.extension() == ".json" || fs::exists(beside)) return describe_shards(path);
  throw InputError({"info", path.string(), "a checkpoint, a run folder, or DIR/NAME of a shard set",
                    fs::exists(path) ? "none of these" : "nothing there",
                    "check the path; without one, this machine is described"});
}

void print(const json& object, const std::string& indent) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      fmt::print("{}{}\n", indent, key);
      print(value, indent + "  ");
    } else {
      fmt::print("{}{:<24} {}\n", indent, key, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

}  // namespace

Command add_info(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("info", "What a checkpoint, a run, a shard set, a scale or this machine is");
  auto* path = command->add_option(
      "PATH", options->path, "Checkpoint, run folder or DIR/NAME of a shard set; without it: this machine and build");
  auto* scale = command->add_option("--scale", options->scale, "Dimensions and parameter count of a scale instead")
                    ->excludes(path);
  command->add_option("--design", options->design, "With --scale: of this design; left out: mhar train's default")
      ->needs(scale);
  command->add_flag("--json", options->json, "Print one JSON line");
  return [options] {
    const json object = describe(*options);
    if (options->json) {
      // A path need not be UTF-8.
      fmt::print("{}\n", object.dump(-1, ' ', false, json::error_handler_t::replace));
    } else {
      print(object, "");
    }
    return int{kDone};
  };
}

}  // namespace mhar::cli
