#include "model/generate.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/usage.h"
#include "config/run_config.h"
#include "train/device.h"
#include "train/model_folder.h"

namespace mhar::cli {
namespace {

struct Options {
  std::string checkpoint, prompt, device = "auto";
  std::vector<int64_t> prompt_tokens;
  SamplingOptions sampling;
  int64_t threads = 0;
  bool json = false;
};

bool is_bytes(const data::Tokenizer& tokenizer) { return tokenizer.kind == "bytes"; }

std::vector<int64_t> prompt_ids(const Options& options, const data::Tokenizer& tokenizer) {
  if (!options.prompt_tokens.empty()) return options.prompt_tokens;
  if (!is_bytes(tokenizer)) {
    throw InputError({"generate", "option --prompt", "a checkpoint trained on bytes",
                      "one trained with the tokenizer " + tokenizer.name,
                      "use python -m mhar.generate with its tokenizer.json, or give --prompt-tokens 1,2,3"});
  }
  std::vector<int64_t> ids;
  for (const char byte : options.prompt) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

std::string text_of(const std::vector<int64_t>& ids) {
  std::string text;
  for (const int64_t id : ids) {
    if (id < 256) text.push_back(static_cast<char>(id));
  }
  return text;
}

int run(Options& options) {
  const at::Device device = choose_device(options.device);
  make_deterministic(options.threads);
  const fs::path folder = find_checkpoint(options.checkpoint);
  const auto model = load_model(folder, at::ScalarType::Undefined, device);
  const data::Tokenizer tokenizer = checkpoint_tokenizer(folder, model->config());
  options.sampling.end_of_text = tokenizer.end_of_text;
  const auto prompt = prompt_ids(options, tokenizer);
  if (model->config().sequence > 0 && static_cast<int64_t>(prompt.size()) > model->config().sequence) {
    spdlog::warn("the prompt has {} tokens; only its last {} are read", prompt.size(), model->config().sequence);
  }
  const auto ids = generate(*model, prompt, options.sampling);
  const std::string text = is_bytes(tokenizer) ? text_of(ids) : std::string();
  if (options.json) {
    const nlohmann::json line = {
        {"event", "sample"},
        {"checkpoint", folder.string()},
        {"prompt", options.prompt},
        {"prompt_token_ids", prompt},
        {"text", text},
        {"tokenizer", {{"kind", tokenizer.kind}, {"name", tokenizer.name}, {"hash", tokenizer.hash}}},
        {"token_ids", ids},
        {"tokens", ids.size()},
        {"temperature", options.sampling.temperature},
        {"top_k", options.sampling.top_k},
        {"seed", options.sampling.seed}};
    // Sampled bytes need not be UTF-8; token_ids has them exactly.
    fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else if (is_bytes(tokenizer)) {
    fmt::print("{}{}\n", options.prompt, text);
  } else {
    fmt::print("{}\n", fmt::join(ids, ","));
  }
  return kDone;
}

}  // namespace

Command add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto& sampling = options->sampling;
  auto* command = app.add_subcommand("generate", "Sample text after a prompt");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Checkpoint, Hugging Face model folder, or run folder (its newest checkpoint)")
      ->required();
  auto* prompt = command->add_option("--prompt", options->prompt, "Text to go on from");
  auto* ids =
      command->add_option("--prompt-tokens", options->prompt_tokens, "Token ids to go on from, separated by commas")
          ->delimiter(',');
  ids->excludes(prompt);
  command->add_option("--tokens", sampling.tokens, "How many tokens to sample")
      ->check(whole_from(0))
      ->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->check(number_from(0))
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Sample among the k likeliest; 0: all")
      ->check(whole_from(0))
      ->capture_default_str();
  command->add_option("--seed", sampling.seed, "Same seed, same text")->capture_default_str();
  command->add_flag("--stop-at-end", sampling.stop_at_end,
                    "Stop at end-of-text; without it end-of-text is never sampled");
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: one per core")
      ->check(whole_from(0, kMostThreads))
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON line");
  return [options] { return run(*options); };
}

}  // namespace mhar::cli
