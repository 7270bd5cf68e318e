#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <torch/torch.h>

#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/npy.h"
#include "cli/usage.h"
#include "config/run_config.h"
#include "data/token_stream.h"
#include "train/batches.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/model_folder.h"

namespace mhar::cli {
namespace {

struct Options {
  std::string checkpoint, data, device = "auto", precision, split = "validation", logits;
  int64_t windows = 256, sequence = 0, batch = 8, threads = 0;
  bool json = false;
};

void check_tokenizer(const data::Tokenizer& trained, const data::Tokenizer& given, const std::string& data) {
  if (trained.kind == "unknown") {
    spdlog::info("the checkpoint names no tokenizer; the shards' is {}", given.name);
    return;
  }
  if (trained == given) return;
  throw InputError({"evaluate", data,
                    fmt::format("shards of the checkpoint's tokenizer {} ({} ids)", trained.name, trained.vocabulary),
                    fmt::format("{} ({} ids)", given.name, given.vocabulary),
                    "prepare the data with the checkpoint's tokenizer"});
}

void write_logits(const std::string& path, const Decoder& model, const data::TokenStream& stream, int64_t sequence) {
  at::NoGradGuard no_gradient;
  const int64_t first = 0;
  const Batch batch = read_windows(stream, {&first, 1}, sequence, model.parameters().device());
  write_npy(path, model.logits(model.hidden(batch.ids)).to(at::kCPU, at::kFloat));
}

int run(const Options& options) {
  const at::Device device = choose_device(options.device);
  make_deterministic(options.threads);
  const fs::path folder = find_checkpoint(options.checkpoint);
  const auto type = options.precision.empty() ? at::ScalarType::Undefined : precision_type(options.precision);
  const auto model = load_model(folder, type, device);
  const data::Manifest manifest = data::read_manifest(options.data);
  check_tokenizer(checkpoint_tokenizer(folder, model->config()), manifest.tokenizer, options.data);
  const data::TokenStream stream(options.data, manifest, options.split, model->config().vocabulary);
  const int64_t sequence = options.sequence > 0 ? options.sequence : model->config().sequence;
  if (sequence < 1) {
    throw InputError({"evaluate", "option --sequence",
                      "a window length, which this checkpoint's config.json does not give", "none",
                      "add --sequence N"});
  }
  const Evaluation result = evaluate(*model, stream, options.windows, sequence, options.batch);
  if (options.windows > result.windows)
    spdlog::info("{} windows asked for, {} there are: all used", options.windows, result.windows);
  if (!options.logits.empty()) write_logits(options.logits, *model, stream, sequence);

  const auto& split = options.split == "train" ? manifest.train : manifest.validation;
  const double bits = bits_per_byte(result.loss * static_cast<double>(split.tokens), static_cast<double>(split.bytes));
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"event", "eval"},
                                      {"checkpoint", folder.string()},
                                      {"loss", result.loss},
                                      {"perplexity_per_token", perplexity(result.loss)},
                                      {"bits_per_byte", bits},
                                      {"tokens", result.tokens},
                                      {"windows", result.windows},
                                      {"sequence", sequence},
                                      {"split", options.split}}
                           .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    return kDone;
  }
  fmt::print(
      "loss                 {:.6f} nats per token\nperplexity           {:.4f} per token\nbits                 {:.4f} "
      "per byte of text\n"
      "tokens counted       {} in {} windows of {} ({} split)\n",
      result.loss, perplexity(result.loss), bits, result.tokens, result.windows, sequence, options.split);
  return kDone;
}

}  // namespace

Command add_eval(CLI::App& app) {
  auto options = std::make_shared<Options>();
  auto* command = app.add_subcommand("eval", "Loss and perplexity of a checkpoint on token shards");
  command
      ->add_option("--checkpoint", options->checkpoint,
                   "Checkpoint, Hugging Face model folder, or run folder (its newest checkpoint)")
      ->required();
  command->add_option("--data", options->data, "DIR/NAME of a shard set")->required();
  command->add_option("--split", options->split, "Which split")
      ->check(one_of({"train", "validation"}))
      ->capture_default_str();
  command->add_option("--windows", options->windows, "Windows from the split's start; 0: all")
      ->check(whole_from(0))
      ->capture_default_str();
  command->add_option("--sequence", options->sequence, "Targets in a window; 0: as trained")
      ->check(whole_from(0, std::numeric_limits<int32_t>::max()))
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Windows a pass")->check(whole_from(1))->capture_default_str();
  command->add_option("--precision", options->precision, "bf16 or fp32; left out: as stored")
      ->check(one_of({"bf16", "fp32"}));
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: one per core")
      ->check(whole_from(0, kMostThreads))
      ->capture_default_str();
  command->add_option("--logits", options->logits,
                      "Also write the first window's logits [T, V] to this .npy file (fp32)");
  command->add_flag("--json", options->json, "Print one JSON line");
  return [options] { return run(*options); };
}

}  // namespace mhar::cli
