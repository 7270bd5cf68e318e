#include "config/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "config/value.h"

namespace mhar {
namespace {

using C = RunConfig;
using Words = std::vector<std::string>;
constexpr bool mathematics = true;

std::vector<std::string> scale_names() {
  std::vector<std::string> names;
  for (const Scale& scale : scales()) names.push_back(scale.name);
  return names;
}

std::vector<Option> build_table() {
  const Words reads = {"chunked", "composed"};
  const Words precisions = {"bf16", "fp32"}, roundings = {"stochastic", "nearest", "master"};
  const Words moment_types = {"parameters", "fp32"};
  const std::string model = "Model", data = "Data", learning = "Optimisation", run = "Run";
  return {
      {"scale", &C::scale, model, "row of the table of scales that gives every dimension left at 0", scale_names(),
       mathematics},
      {"design", &C::design, model, "residual design, see the list below", {}, mathematics},
      {"vocabulary", &C::vocabulary, model, "token ids the model knows; 0: the scale's", {}, mathematics},
      {"width", &C::width, model, "channels of the residual path (D); 0: the scale's", {}, mathematics},
      {"layers", &C::layers, model, "transformer blocks (L); 0: the scale's", {}, mathematics},
      {"heads", &C::heads, model, "query heads; 0: the scale's", {}, mathematics},
      {"kv-heads", &C::kv_heads, model, "key/value heads, a divisor of heads; 0: the scale's", {}, mathematics},
      {"head-dim", &C::head_dim, model, "channels per head; 0: the scale's or width / heads", {}, mathematics},
      {"ffn", &C::ffn, model, "inner width of the MLP; 0: the scale's", {}, mathematics},
      {"routing-heads", &C::routing_heads, model, "heads of the depth read (H); 0: the design's own", {}, mathematics},
      {"tied", &C::tied, model, "embedding and output head share one matrix", {}, mathematics},
      {"qk-norm", &C::qk_norm, model, "RMSNorm on each query and key head", {}, mathematics},
      {"rope-theta", &C::rope_theta, model, "base of the rotary positions", {}, mathematics},
      {"norm-eps", &C::norm_eps, model, "added to the mean square in every RMSNorm", {}, mathematics},
      {"read", &C::read, model, "depth reads: the chunked engine, or composed of tensor operations", reads},
      {"read-chunk", &C::read_chunk, model, "sites of a chunk of that engine, 1 to 16; 0: planned", {}},

      {"data", &C::data, data, "DIR/NAME of the shard set", {}},
      {"sequence", &C::sequence, data, "tokens in a window (T); 0: the scale's", {}, mathematics},
      {"microbatch", &C::microbatch, data, "windows in the model at once; 0: the scale's", {}, mathematics},
      {"global-batch", &C::global_batch, data, "windows per update; 0: the scale's", {}, mathematics},
      {"accumulate", &C::accumulate, data, "microbatches per update; 0: as --global-batch says", {}},
      {"validation-windows", &C::validation_windows, data, "windows of a validation, from the first on; 0: all", {}},
      {"seed", &C::seed, data, "seed of initial values, data order and stochastic rounding", {}, mathematics},

      {"steps", &C::steps, learning, "updates of the whole run", {}, mathematics},
      {"warm-up", &C::warm_up, learning, "updates of linear warm-up; -1: steps / 20, rounded up", {}, mathematics},
      {"rate", &C::rate, learning, "peak learning rate", {}, mathematics},
      {"rate-floor", &C::rate_floor, learning, "rate of the last update, as a share of the peak", {}, mathematics},
      {"beta1", &C::beta1, learning, "AdamW's decay of the first moment", {}, mathematics},
      {"beta2", &C::beta2, learning, "AdamW's decay of the second moment", {}, mathematics},
      {"adam-eps", &C::adam_eps, learning, "added to AdamW's denominator", {}, mathematics},
      {"weight-decay", &C::weight_decay, learning, "decoupled weight decay, on every parameter", {}, mathematics},
      {"clip", &C::clip, learning, "largest global gradient norm", {}, mathematics},
      {"z-loss", &C::z_loss, learning, "weight of the mean squared log-sum-exp; 0: none", {}, mathematics},
      {"precision", &C::precision, learning, "type of parameters and compute", precisions, mathematics},
      {"rounding", &C::rounding, learning, "how bf16 parameters take an update", roundings, mathematics},
      {"moments", &C::moments, learning, "type of AdamW's moments", moment_types, mathematics},

      {"run", &C::run, run, "folder of the run", {}},
      {"device", &C::device, run, "auto, cpu, cuda or cuda:N", {}},
      {"threads", &C::threads, run, "CPU threads; 0: one per core, on resume as before", {}},
      {"cuda-graph", &C::cuda_graph, run, "record an update once and replay it: the same bits, less of the host", {}},
      {"validate-every", &C::validate_every, run, "updates between validations", {}},
      {"save-every", &C::save_every, run, "updates between checkpoints", {}},
      {"keep-last", &C::keep_last, run, "newest checkpoints that are kept", {}},
      {"keep-every", &C::keep_every, run, "also keep checkpoints at multiples of this update; 0: none", {}},
      {"log-every", &C::log_every, run, "updates between progress lines when standard error is no terminal", {}},
      {"resume", &C::resume, run, "auto (newest complete checkpoint of the run), never, or a checkpoint folder", {}},
      {"fresh-data", &C::fresh_data, run, "accept another shard set on resume and start it from its first window", {}},
      {"stop-after", &C::stop_after, run, "save and stop with exit code 3 after this update; 0: never", {}},
  };
}

/// What was wanted of `text`, or an empty string and the number in `value`.
template <typename Number>
std::string parse_number(const std::string& text, const char* wanted, Number& value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::result_out_of_range) return fmt::format("{} within range", wanted);
  return error != std::errc() || stop != end ? wanted : "";
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> table = build_table();
  return table;
}

std::string assign(RunConfig& config, const Option& option, const std::string& text) {
  if (const auto* word = std::get_if<std::string C::*>(&option.field)) {
    const auto& choices = option.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
      return fmt::format("one of {}", fmt::join(choices, ", "));
    }
    config.** word = text;
  } else if (const auto* whole = std::get_if<int64_t C::*>(&option.field)) {
    int64_t value = 0;
    if (std::string wanted = parse_number(text, "a whole number", value); !wanted.empty()) return wanted;
    config.** whole = value;
  } else if (const auto* real = std::get_if<double C::*>(&option.field)) {
    double value = 0.0;
    if (std::string wanted = parse_number(text, "a number", value); !wanted.empty()) return wanted;
    if (!std::isfinite(value)) return "a finite number";
    config.** real = value;
  } else {
    if (text != "true" && text != "false") return "true or false";
    config.*std::get<bool C::*>(option.field) = text == "true";
  }
  return "";
}

void set_option(RunConfig& config, const Option& option, const std::string& text) {
  if (const std::string wanted = assign(config, option, text); !wanted.empty()) {
    throw InputError({"option --" + option.name, "", wanted, "'" + text + "'", "change --" + option.name});
  }
}

std::string option_text(const RunConfig& config, const Option& option) {
  return std::visit([&](auto field) { return fmt::format("{}", config.*field); }, option.field);
}

std::vector<Difference> mathematics_differences(const RunConfig& stored, const RunConfig& asked) {
  std::vector<Difference> differences;
  for (const Option& option : options()) {
    if (!option.mathematics) continue;
    const bool same = std::visit([&](auto field) { return stored.*field == asked.*field; }, option.field);
    if (!same) differences.push_back({option.name, option_text(stored, option), option_text(asked, option)});
  }
  return differences;
}

}  // namespace mhar
