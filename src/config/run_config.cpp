#include "config/run_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "config/options.h"

namespace mhar {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& wanted, const std::string& got) {
  throw InputError({"option --" + option, "", wanted, got, "change --" + option});
}

int64_t or_scale(int64_t given, int64_t scale) { return given != 0 ? given : scale; }

void check_whole(const std::string& option, int64_t value, int64_t smallest,
                 int64_t largest = std::numeric_limits<int32_t>::max()) {
  if (value < smallest || value > largest) {
    refuse(option, fmt::format("a whole number from {} to {}", smallest, largest), fmt::format("{}", value));
  }
}

void check_real(const std::string& option, double value, bool allowed, const char* wanted) {
  if (!std::isfinite(value) || !allowed) refuse(option, wanted, fmt::format("{}", value));
  if (!fits_fp32(value)) refuse(option, "a number that fp32 holds", fmt::format("{}", value));
}

void check_words(const RunConfig& c) {
  for (const Option& option : options()) {
    const auto* word = std::get_if<std::string RunConfig::*>(&option.field);
    if (word == nullptr || option.choices.empty()) continue;
    const std::string& value = c.**word;
    if (std::find(option.choices.begin(), option.choices.end(), value) == option.choices.end()) {
      refuse(option.name, fmt::format("one of {}", fmt::join(option.choices, ", ")), "'" + value + "'");
    }
  }
  for (const auto& [name, value] : {std::pair{"design", c.design}, {"device", c.device}, {"resume", c.resume}}) {
    if (value.empty()) refuse(name, "a word", "nothing");
  }
}

/// Fills microbatch and global_batch in; accumulate is folded into global_batch.
void resolve_batches(RunConfig& c, const Scale& scale) {
  if (c.microbatch != 0) check_whole("microbatch", c.microbatch, 1);
  if (c.global_batch != 0) check_whole("global-batch", c.global_batch, 1);
  if (c.accumulate != 0) {
    check_whole("accumulate", c.accumulate, 1);
    c.microbatch = or_scale(c.microbatch, scale.microbatch);
    const int64_t product = c.microbatch * c.accumulate;
    if (c.global_batch != 0 && c.global_batch != product) {
      throw InputError({"option --accumulate", fmt::format("{}", c.accumulate),
                        fmt::format("--microbatch {} times it to be --global-batch {}", c.microbatch, c.global_batch),
                        fmt::format("{}", product), "give --accumulate or --global-batch, not both"});
    }
    check_whole("global-batch", product, 1);
    c.global_batch = product;
    c.accumulate = 0;
    return;
  }
  const bool only_global = c.microbatch == 0 && c.global_batch != 0;
  c.global_batch = or_scale(c.global_batch, scale.global_batch);
  // The scale's microbatch is what fits its memory: a global batch that it does not divide takes a smaller one.
  if (only_global) c.microbatch = std::gcd(scale.microbatch, c.global_batch);
  c.microbatch = or_scale(c.microbatch, scale.microbatch);
  if (c.global_batch % c.microbatch != 0) {
    throw InputError({"option --microbatch", "", fmt::format("a divisor of --global-batch {}", c.global_batch),
                      fmt::format("{}", c.microbatch), "change --microbatch or --global-batch"});
  }
}

void resolve_optimisation(RunConfig& c) {
  check_whole("steps", c.steps, 1);
  if (c.warm_up == -1) c.warm_up = (c.steps + 19) / 20;
  if (c.warm_up < 0 || c.warm_up > c.steps) {
    throw InputError({"option --warm-up", "", fmt::format("0 to --steps {}, or -1 for a twentieth of them", c.steps),
                      fmt::format("{}", c.warm_up), "change --warm-up or --steps"});
  }
  check_real("rate", c.rate, c.rate > 0.0, "a finite number above 0");
  check_real("rate-floor", c.rate_floor, c.rate_floor >= 0.0 && c.rate_floor <= 1.0, "a share of the rate from 0 to 1");
  check_real("beta1", c.beta1, c.beta1 >= 0.0 && c.beta1 < 1.0, "a number from 0 to below 1");
  check_real("beta2", c.beta2, c.beta2 >= 0.0 && c.beta2 < 1.0, "a number from 0 to below 1");
  check_real("adam-eps", c.adam_eps, c.adam_eps > 0.0, "a finite number above 0");
  check_real("weight-decay", c.weight_decay, c.weight_decay >= 0.0, "a finite number of 0 or more");
  check_real("clip", c.clip, c.clip > 0.0, "a finite number above 0");
  check_real("z-loss", c.z_loss, c.z_loss >= 0.0, "a finite number of 0 or more");
  if (c.rounding == "master" && c.precision == "fp32") {
    throw InputError({"option --rounding", "", "stochastic or nearest with --precision fp32", "master",
                      "leave --rounding out (fp32 parameters need no fp32 copy) or use --precision bf16"});
  }
}

void check_run(const RunConfig& c) {
  check_whole("validation-windows", c.validation_windows, 0);
  check_whole("seed", c.seed, 0, std::numeric_limits<int64_t>::max());
  check_whole("threads", c.threads, 0, kMostThreads);
  check_whole("validate-every", c.validate_every, 1);
  check_whole("save-every", c.save_every, 1);
  check_whole("keep-last", c.keep_last, 1);
  check_whole("keep-every", c.keep_every, 0);
  check_whole("log-every", c.log_every, 1);
  check_whole("stop-after", c.stop_after, 0);
  const auto tokens = static_cast<__int128>(c.steps) * c.global_batch * c.sequence;
  if (tokens > std::numeric_limits<int64_t>::max()) {
    refuse("steps", "fewer than 2^63 tokens in a run",
           fmt::format("--steps {} --global-batch {} --sequence {}", c.steps, c.global_batch, c.sequence));
  }
}

}  // namespace

ModelConfig RunConfig::model() const {
  ModelConfig m = find_scale(scale).model;
  m.design = design;
  m.vocabulary = or_scale(vocabulary, m.vocabulary);
  m.width = or_scale(width, m.width);
  m.layers = or_scale(layers, m.layers);
  m.heads = or_scale(heads, m.heads);
  m.kv_heads = or_scale(kv_heads, m.kv_heads);
  m.ffn = or_scale(ffn, m.ffn);
  m.routing_heads = routing_heads;
  m.sequence = or_scale(sequence, m.sequence);
  m.norm_eps = norm_eps;
  m.composed_reads = read == "composed";
  m.read_chunk = read_chunk;
  m.rope_theta = rope_theta;
  m.tied = tied;
  m.qk_norm = qk_norm;
  if (head_dim != 0) {
    m.head_dim = head_dim;
  } else if (width != 0 || heads != 0) {
    // The scale's own head dimension belongs to the scale's width and heads.
    if (m.heads < 1 || m.width < 1 || m.width % m.heads != 0) {
      throw InputError({"option --heads", "", fmt::format("a divisor of --width {}", m.width),
                        fmt::format("{}", m.heads), "change --heads or --width, or give --head-dim"});
    }
    m.head_dim = m.width / m.heads;
  }
  return m;
}

RunConfig resolve(RunConfig c) {
  check_words(c);
  const Scale& scale = find_scale(c.scale);
  const ModelConfig m = c.model();
  validate(m);
  c.vocabulary = m.vocabulary;
  c.width = m.width;
  c.layers = m.layers;
  c.heads = m.heads;
  c.kv_heads = m.kv_heads;
  c.head_dim = m.head_dim;
  c.ffn = m.ffn;
  c.sequence = m.sequence;
  resolve_batches(c, scale);
  resolve_optimisation(c);
  check_run(c);
  return c;
}

}  // namespace mhar
