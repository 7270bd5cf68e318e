#include "bench/peers.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/process.h"

namespace mhar::bench {

using nlohmann::json;

std::optional<double> number_in(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_number() ? std::optional<double>(found->get<double>()) : std::nullopt;
}

std::string text_in(const json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void require_script(const PeerScript& script) {
  if (std::filesystem::is_regular_file(script.path)) return;
  const std::string name = std::filesystem::path(script.path).filename();
  throw InputError({"option --peer-script", script.path, "the script of the peers", "nothing there",
                    "start from the checkout's folder, or give the path of " + name + " in its bench/peers"});
}

void run_script(const PeerScript& script, const std::vector<std::string>& words,
                const std::function<void(const json&)>& take_line) {
  std::vector<std::string> command = {script.python, script.path};
  command.insert(command.end(), words.begin(), words.end());
  const int code = run_program(command, [&](const std::string& text) {
    const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (line.is_object() && !text_in(line, "name").empty()) take_line(line);
  });
  if (code == 0) return;
  const std::string error =
      code == 127 ? script.python + " could not be started" : "ended with code " + std::to_string(code);
  take_line({{"name", script.path}, {"error", error}});
}

std::vector<Peer> run_peers(const PeerScript& script, const ReadShape& shape, const std::string& dtype,
                            at::Device device, const Effort& effort) {
  std::vector<std::string> words;
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
  run_script(script, words, [&](const json& line) {
    Peer peer;
    peer.name = text_in(line, "name");
    peer.forward_ms = number_in(line, "forward_ms");
    peer.backward_ms = number_in(line, "backward_ms");
    peer.total_ms = number_in(line, "total_ms");
    peer.warm_total_ms = number_in(line, "warm_total_ms");
    peer.error = text_in(line, "error");
    peers.push_back(std::move(peer));
  });
  return peers;
}

}  // namespace mhar::bench
