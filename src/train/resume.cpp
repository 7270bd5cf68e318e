#include "train/resume.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/store.h"
#include "config/options.h"

namespace mhar {
namespace {

std::string data_of(const TrainState& state) {
  return fmt::format("data set {} ({})", state.data_hash.substr(0, 12), listed(state.shards, 4));
}

bool holds_something(const fs::path& folder) {
  return fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder));
}

}  // namespace

std::optional<fs::path> resume_point(const RunConfig& config) {
  const fs::path run = config.run;
  if (config.resume == "never") {
    if (holds_something(run)) {
      throw InputError({"start a run", run.string(), "a new or empty folder", "one that holds something already",
                        "go on with --resume auto, or choose another --run"});
    }
    return std::nullopt;
  }
  if (config.resume != "auto") {
    const fs::path checkpoint = config.resume;
    if (!fs::exists(checkpoint / "state.json")) {
      throw InputError({"resume", checkpoint.string(), "a checkpoint folder with state.json",
                        fs::exists(checkpoint) ? "none in it" : "nothing there",
                        "give --resume auto, never or a folder such as RUN/checkpoints/step-00001000"});
    }
    checkpoint::check_complete(checkpoint);
    return checkpoint;
  }
  std::vector<std::string> skipped;
  auto newest = checkpoint::Store(run / "checkpoints").newest(skipped);
  if (!newest && !skipped.empty()) {
    throw InputError({"resume", (run / "checkpoints").string(), "a complete checkpoint",
                      "only damaged ones, the newest: " + skipped.front(),
                      "copy a complete one there, or start again with another --run"});
  }
  for (const auto& reason : skipped) spdlog::warn("passed over a checkpoint: {}", reason);
  return newest;
}

void adopt_data(TrainState& state, const data::Manifest& manifest) {
  state.data_hash = manifest.hash();
  state.tokenizer = manifest.tokenizer;
  state.shards.clear();
  for (const auto& shard : manifest.train.shards) state.shards.push_back(shard.file);
}

void reconcile(TrainState& state, const RunConfig& asked, const data::Manifest& manifest, int64_t threads,
               const std::string& device) {
  for (const auto& difference : mathematics_differences(state.config, asked)) {
    throw InputError({"resume", "option --" + difference.option,
                      "'" + difference.stored + "' as the run was started with", "'" + difference.asked + "'",
                      "give the stored value, or start a new run"});
  }
  if (state.data_hash != manifest.hash()) {
    const std::string stored = data_of(state);
    adopt_data(state, manifest);
    const std::string now = data_of(state);
    if (!asked.fresh_data) {
      throw InputError({"resume", "option --data", stored, now,
                        "restore the data, or add --fresh-data to start this set from its first window"});
    }
    spdlog::warn("data changed from {} to {}: the loader starts at 0", stored, now);
    state.next_batch = 0;
  }
  if (state.threads != threads) {
    spdlog::warn("threads changed from {} to {}: the numbers may differ in their last bits from an unbroken run",
                 state.threads, threads);
    state.threads = threads;
  }
  if (state.device != device) {
    spdlog::warn("device changed from {} to {}: the numbers may differ in their last bits from an unbroken run",
                 state.device, device);
    state.device = device;
  }
}

}  // namespace mhar
