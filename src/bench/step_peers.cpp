#include "bench/step_peers.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "bench/process.h"

namespace mhar::bench {
namespace {

std::vector<std::string> words_of(const StepPeerRequest& request) {
  const RunConfig& c = request.config;
  std::vector<std::string> words;
  const auto add = [&](const char* option, const auto& value) {
    if constexpr (std::is_convertible_v<decltype(value), std::string>) {
      words.insert(words.end(), {option, value});
    } else {
      words.insert(words.end(), {option, std::to_string(value)});
    }
  };
  add("--vocabulary", c.vocabulary);
  add("--width", c.width);
  add("--layers", c.layers);
  add("--heads", c.heads);
  add("--kv-heads", c.kv_heads);
  add("--head-dim", c.head_dim);
  add("--ffn", c.ffn);
  add("--routing-heads", c.routing_heads > 0 ? c.routing_heads : c.kv_heads);
  add("--microbatch", c.microbatch);
  add("--sequence", c.sequence);
  add("--accumulate", c.accumulation());
  if (!c.tied) words.push_back("--untied");
  if (!c.qk_norm) words.push_back("--without-qk-norm");
  add("--precision", c.precision);
  add("--threads", c.threads);
  add("--device", request.device.str());
  add("--warm-up", request.effort.warm_up);
  add("--steps", request.effort.repeat);
  if (!request.only.empty()) add("--only", request.only);
  if (request.limit_seconds > 0) add("--limit-seconds", request.limit_seconds);
  return words;
}

}  // namespace

void require_step_peers(const PeerScript& script, const std::string& only) {
  require_script(script);
  std::string known;
  const auto add = [&](const std::string& name) { known += (known.empty() ? "" : ",") + name; };
  if (const int code = run_program({script.python, script.path, "--list"}, add); code != 0) {
    throw InputError({"option --python", script.python, "a Python that runs " + script.path,
                      code == 127 ? "none of this name" : "exit code " + std::to_string(code),
                      "give the path of a Python with PyTorch"});
  }
  std::istringstream words(only);
  for (std::string word; std::getline(words, word, ',');) {
    if (("," + known + ",").find("," + word + ",") != std::string::npos) continue;
    throw InputError({"option --peer-only", "", "some of " + known, "'" + word + "'", "change --peer-only"});
  }
}

void run_step_peers(const StepPeerRequest& request, const std::function<void(const StepPeer&)>& take) {
  run_script(request.script, words_of(request), [&](const nlohmann::json& line) {
    StepPeer peer;
    peer.name = text_in(line, "name");
    peer.ms = number_in(line, "ms");
    peer.least = number_in(line, "least");
    peer.most = number_in(line, "most");
    peer.peak_bytes = number_in(line, "peak_bytes");
    peer.reserved_bytes = number_in(line, "reserved_bytes");
    peer.attention = text_in(line, "attention");
    peer.error = text_in(line, "error");
    peer.headline = line.contains("headline") && line["headline"] == true;
    take(peer);
  });
}

const StepPeer* headline_peer(const std::vector<StepPeer>& peers) {
  const StepPeer* best = nullptr;
  for (const StepPeer& peer : peers) {
    if (peer.headline && peer.ms && (!best || *peer.ms < *best->ms)) best = &peer;
  }
  return best;
}

}  // namespace mhar::bench
