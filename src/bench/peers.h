#pragma once
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/shapes.h"
#include "bench/timing.h"

namespace mhar::bench {

struct PeerScript {
  std::string python, path;
};

/// Throws InputError unless the script is there.
void require_script(const PeerScript& script);

/// Starts the script with further words and hands over each JSON line with a "name" as it comes. A script that fails
/// as a whole is a last line of its own, with "name" and "error".
void run_script(const PeerScript& script, const std::vector<std::string>& words,
                const std::function<void(const nlohmann::json&)>& take_line);

/// What a peer's line says under a key; nothing where that is missing or of another type.
std::optional<double> number_in(const nlohmann::json& line, const char* key);
std::string text_in(const nlohmann::json& line, const char* key);

/// Somebody else's reads of the same shape; what was not measured is absent.
struct Peer {
  std::string name;
  std::optional<double> forward_ms, backward_ms, total_ms, warm_total_ms;
  std::optional<double> ratio;  ///< its total over ours, cleared over cleared where there is one, else warm over warm
  std::string error;            ///< why there are no times
};

/// Starts the script on a shape; each JSON line it prints is a peer.
std::vector<Peer> run_peers(const PeerScript& script, const ReadShape& shape, const std::string& dtype,
                            at::Device device, const Effort& effort);

}  // namespace mhar::bench
