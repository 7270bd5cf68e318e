#include "train/state.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "base/version.h"
#include "config/options.h"

namespace mhar {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "mhar-state";
constexpr int kVersion = 1;

json to_json(const data::Tokenizer& t) {
  return {{"kind", t.kind},
          {"name", t.name},
          {"hash", t.hash},
          {"vocabulary", t.vocabulary},
          {"end_of_text", t.end_of_text}};
}

data::Tokenizer tokenizer_from(const json& j) {
  return {j.at("kind"), j.at("name"), j.at("hash"), j.at("vocabulary"), j.at("end_of_text")};
}

/// A whole number that can be one; json's own conversion takes fractions and wraps what is too large.
int64_t whole(const json& j, const char* key, int64_t largest, const std::string& origin) {
  const json& value = j.at(key);
  if (value.is_number_unsigned() && value.get<uint64_t>() <= static_cast<uint64_t>(largest)) return value;
  throw InputError({"read training state", origin + ": " + key, "a whole number from 0 to " + std::to_string(largest),
                    value.dump(), "use another checkpoint"});
}

TrainState from_json(const json& j, const std::string& origin) {
  TrainState state;
  for (const auto& option : options()) {
    if (j.at("options").contains(option.name))
      set_option(state.config, option, j.at("options").at(option.name).get<std::string>());
  }
  state.step = whole(j, "step", state.config.steps, origin);
  state.tokens = whole(j, "tokens", std::numeric_limits<int64_t>::max(), origin);
  state.next_batch = whole(j, "next_batch", std::numeric_limits<int32_t>::max(), origin);
  state.train_loss = j.at("train_loss");
  state.threads = j.at("threads");
  state.device = j.at("device");
  state.program = j.at("program");
  state.data_hash = j.at("data_hash");
  state.shards = j.at("shards").get<std::vector<std::string>>();
  state.tokenizer = tokenizer_from(j.at("tokenizer"));
  state.validations = j.at("validations").get<std::vector<std::pair<int64_t, double>>>();
  state.initial_hashes = j.at("initial_hashes").get<std::map<std::string, std::string>>();
  return state;
}

}  // namespace

double TrainState::validation_tail_mean() const {
  if (validations.empty()) return std::numeric_limits<double>::quiet_NaN();
  const double sum = std::accumulate(validations.begin(), validations.end(), 0.0,
                                     [](double s, const auto& v) { return s + v.second; });
  return sum / static_cast<double>(validations.size());
}

void write_state(const fs::path& folder, const TrainState& state) {
  json values = json::object();
  for (const auto& option : options()) values[option.name] = option_text(state.config, option);
  const json j = {{"format", kFormat},
                  {"version", kVersion},
                  {"program", version()},
                  {"step", state.step},
                  {"tokens", state.tokens},
                  {"next_batch", state.next_batch},
                  {"train_loss", state.train_loss},
                  {"random", {{"seed", state.config.seed}, {"counter", state.step}}},
                  {"threads", state.threads},
                  {"device", state.device},
                  {"data_hash", state.data_hash},
                  {"shards", state.shards},
                  {"tokenizer", to_json(state.tokenizer)},
                  {"validations", state.validations},
                  {"initial_hashes", state.initial_hashes},
                  {"options", values}};
  FileWriter file(folder / "state.json");
  file.write(std::string_view(j.dump(2)));
  file.close();
}

TrainState read_state(const fs::path& folder) {
  const fs::path path = folder / "state.json";
  const json j = json::parse(read_text(path, "read training state"), nullptr, /*allow_exceptions=*/false);
  const bool ours = j.is_object() && j.value("format", json()) == kFormat;
  if (!ours || j.value("version", json()) != kVersion) {
    throw InputError({"read training state", path.string(),
                      std::string(kFormat) + " version " + std::to_string(kVersion),
                      ours ? "version " + j.value("version", json()).dump() : "something else",
                      "use a checkpoint written by this program, or the version that wrote it"});
  }
  try {
    return from_json(j, path.string());
  } catch (const json::exception& error) {
    throw InputError({"read training state", path.string(), "every field of its right type", error.what(),
                      "use another checkpoint"});
  }
}

}  // namespace mhar
