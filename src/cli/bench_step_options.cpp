#include "cli/bench_step_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "base/error.h"
#include "cli/bench.h"
#include "config/options.h"
#include "residual/design.h"
#include "train/device.h"

namespace mhar::cli {
namespace {

using json = nlohmann::ordered_json;

// Options of `mhar train` that say nothing about a step, or that this command has in its own way.
bool left_out(const Option& option) {
  static const std::vector<std::string> names = {"design",     "data",       "global-batch", "validation-windows",
                                                 "steps",      "warm-up",    "run",          "validate-every",
                                                 "save-every", "keep-last",  "keep-every",   "log-every",
                                                 "resume",     "fresh-data", "stop-after"};
  return std::find(names.begin(), names.end(), option.name) != names.end();
}

// What the benchmark starts from: one update a microbatch of the first scale that the figures are about.
RunConfig defaults() {
  RunConfig config;
  config.scale = scales().front().name;
  config.accumulate = 1;
  return config;
}

}  // namespace

std::string default_designs() { return ModelConfig().design + "," + RunConfig().design; }

RunConfig configured(const StepOptions& options) {
  RunConfig config = defaults();
  for (const Option& option : mhar::options()) {
    const auto found = options.given.find(option.name);
    if (found != options.given.end()) set_option(config, option, found->second);
  }
  if (!options.given.contains("precision")) config.precision = choose_device(config.device).is_cuda() ? "bf16" : "fp32";
  return config;
}

json uncommon(const RunConfig& config) {
  static const std::vector<std::string> keys = {"scale",      "microbatch", "sequence",
                                                "accumulate", "precision",  "device"};  // of the line
  const RunConfig common;
  json found = json::object();
  for (const Option& option : mhar::options()) {
    if (left_out(option) || std::find(keys.begin(), keys.end(), option.name) != keys.end()) continue;
    const std::string value = option_text(config, option);
    if (value != option_text(common, option)) found[option.name] = value;
  }
  return found;
}

std::vector<RunConfig> one_a_design(const RunConfig& config, const std::string& designs) {
  std::vector<RunConfig> all;
  std::istringstream words(designs);
  for (std::string name; std::getline(words, name, ',');) {
    RunConfig one = config;
    one.design = residual::find(name).name;
    all.push_back(resolve(one));
  }
  if (all.empty()) {
    throw InputError({"option --design", "", "designs with commas between", "nothing", "leave it out for both"});
  }
  return all;
}

bench::PeerScript script_of(const StepOptions& options) {
  return {options.python.empty() ? default_python() : options.python, options.peer_script};
}

void add_training_options(CLI::App& command, const std::shared_ptr<StepOptions>& options) {
  const RunConfig start = defaults();
  for (const Option& option : mhar::options()) {
    if (left_out(option)) continue;
    const auto keep = [options, name = option.name](const CLI::results_t& values) {
      options->given[name] = values.back();
      return true;
    };
    std::string help = option.help;
    if (!option.choices.empty()) help += fmt::format(": {}", fmt::join(option.choices, ", "));
    help += option.name == "precision" ? " [bf16 on a GPU, fp32 on the CPU]" : " [" + option_text(start, option) + "]";
    auto* added = command.add_option("--" + option.name, keep, help)->group(option.group)->type_name("VALUE");
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (std::holds_alternative<bool RunConfig::*>(option.field)) added->expected(0, 1)->default_str("true");
  }
}

}  // namespace mhar::cli
