#pragma once
#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/peers.h"
#include "config/run_config.h"

namespace mhar::cli {

/// What `mhar bench step` was asked for.
struct StepOptions {
  std::map<std::string, std::string> given;  ///< option of `mhar train` to the text typed
  std::string designs, table, python, peer_script = "bench/peers/train_step.py", peer_only;
  int64_t steps = 30, warm_up = 8, limit_seconds = 0;
  bool peers = false, profile = false;
};

/// Adds those options of `mhar train` that say something about a step.
void add_training_options(CLI::App& command, const std::shared_ptr<StepOptions>& options);

/// They over the defaults of this command; not resolved. Throws InputError.
RunConfig configured(const StepOptions& options);
std::string default_designs();
/// The configuration with each of the designs, resolved. Throws InputError.
std::vector<RunConfig> one_a_design(const RunConfig& config, const std::string& designs);

/// Options whose value is not the default of `mhar train`, but for those that lines have keys for.
nlohmann::ordered_json uncommon(const RunConfig& config);

bench::PeerScript script_of(const StepOptions& options);

}  // namespace mhar::cli
