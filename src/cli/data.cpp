#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "data/prepare.h"

namespace mhar::cli {
namespace {

struct Options {
  data::PrepareOptions prepare;
  std::string out;
  std::vector<std::string> sources;
  bool json = false;
};

int run(Options& options) {
  options.prepare.prefix = options.out;
  options.prepare.sources.assign(options.sources.begin(), options.sources.end());
  const auto result = data::prepare_bytes(options.prepare);
  for (const auto& reason : result.skipped) spdlog::warn("left out {}", reason);
  const auto& m = result.manifest;
  if (options.json) {
    fmt::print("{}\n", nlohmann::json::parse(data::to_json(m)).dump());
    return kDone;
  }
  fmt::print("{:<12} {:>12} {:>14} {:>14}\n", "split", "documents", "tokens", "bytes");
  for (const auto& [name, split] : {std::pair{"train", &m.train}, std::pair{"validation", &m.validation}}) {
    fmt::print("{:<12} {:>12} {:>14} {:>14}\n", name, split->documents, split->tokens, split->bytes);
  }
  fmt::print("unigram entropy {:.4f} bits per byte; shards at {}\n", m.unigram_bits_per_byte, options.out);
  return kDone;
}

}  // namespace

Command add_data(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand(
      "data",
      "Text files or folders to token shards (bytes; for parquet, jsonl and other tokenizers: python -m mhar.data)");
  command->add_option("--out", options->out, "DIR/NAME of the shard set to write")->required();
  command
      ->add_option("--validation-fraction", options->prepare.validation_fraction,
                   "Share of the documents kept for validation")
      ->capture_default_str();
  command->add_option("--seed", options->prepare.seed, "Chooses the validation documents")->capture_default_str();
  command->add_option("--shard-tokens", options->prepare.shard_tokens, "Tokens in one shard at most")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print the manifest as one JSON line");
  command->add_option("PATH", options->sources, "Text files and folders; every file is one document")->required();
  return [options] { return run(*options); };
}

}  // namespace mhar::cli
