#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "config/run_config.h"

namespace mhar {

/// How a training run ended.
enum class Ending { done, stopped };

/// Called with every line of metrics.jsonl as it is written.
using EventSink = std::function<void(const nlohmann::json&)>;

/// Trains in the run folder from its start or its checkpoint to the last update, or until SIGTERM, SIGINT or
/// config.stop_after. Throws InputError before anything is changed for what cannot be run or resumed, RunError for a
/// training that must not go on.
Ending run_training(const RunConfig& config, const EventSink& sink);

}  // namespace mhar
