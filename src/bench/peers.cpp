#include "bench/peers.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/process.h"

namespace mhar::bench {
namespace {

using nlohmann::json;

std::optional<double> number(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? std::optional<double>(found->get<double>()) : std::nullopt;
}

std::optional<Peer> peer_of(const std::string& text) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object() || !line.contains("name") || !line["name"].is_string()) return std::nullopt;
  Peer peer;
  peer.name = line["name"];
  peer.forward_ms = number(line, "forward_ms");
  peer.backward_ms = number(line, "backward_ms");
  peer.total_ms = number(line, "total_ms");
  peer.warm_total_ms = number(line, "warm_total_ms");
  if (line.contains("error") && line["error"].is_string()) peer.error = line["error"];
  return peer;
}

}  // namespace

void require_script(const PeerScript& script) {
  if (std::filesystem::is_regular_file(script.path)) return;
  throw InputError({"option --peer-script", script.path, "the script of the peers", "nothing there",
                    "start from the checkout's folder, or give the path of bench/peers/depth_reads.py"});
}

std::vector<Peer> run_peers(const PeerScript& script, const ReadShape& shape, const std::string& dtype,
                            at::Device device, const Effort& effort) {
  std::vector<std::string> words = {script.python, script.path};
  const auto add = [&](const char* option, const std::string& value) { words.insert(words.end(), {option, value}); };
  add("--tokens", std::to_string(shape.tokens));
  add("--width", std::to_string(shape.width));
  add("--heads", std::to_string(shape.heads));
  add("--sites", std::to_string(shape.sites));
  add("--block", std::to_string(shape.block));
  add("--dtype", dtype);
  add("--device", device.str());
  add("--warm-up", std::to_string(effort.warm_up));
  add("--repeat", std::to_string(effort.repeat));
  std::vector<Peer> peers;
  const int code = run_program(words, [&](const std::string& line) {
    if (auto peer = peer_of(line)) peers.push_back(std::move(*peer));
  });
  if (code != 0) {
    Peer failed;
    failed.name = script.path;
    failed.error = code == 127 ? script.python + " could not be started" : "ended with code " + std::to_string(code);
    peers.push_back(std::move(failed));
  }
  return peers;
}

}  // namespace mhar::bench
