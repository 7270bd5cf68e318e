#pragma once
#include <optional>

#include "base/file.h"
#include "config/run_config.h"
#include "data/manifest.h"
#include "train/state.h"

namespace mhar {

/// The checkpoint a run goes on from, or none for a fresh start (config.resume). Throws InputError for a run folder
/// that already holds something when resume is never, and for a checkpoint that is not there or not whole.
std::optional<fs::path> resume_point(const RunConfig& config);

/// Notes in `state` which data set it trains on.
void adopt_data(TrainState& state, const data::Manifest& manifest);

/// Refuses to go on when an option that alters the mathematics differs, naming it and both values, or when the training
/// split is another one, naming both sets of files, unless config.fresh_data: then the position goes back to the first
/// window, which is announced. A changed thread count or device is announced. Writes what changed into `state`.
void reconcile(TrainState& state, const RunConfig& asked, const data::Manifest& manifest, int64_t threads,
               const std::string& device);

}  // namespace mhar
