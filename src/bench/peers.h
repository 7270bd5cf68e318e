#pragma once
#include <optional>
#include <string>
#include <vector>

#include "bench/shapes.h"
#include "bench/timing.h"

namespace mhar::bench {

/// Somebody else's reads of the same shape; what was not measured is absent.
struct Peer {
  std::string name;
  std::optional<double> forward_ms, backward_ms, total_ms, warm_total_ms;
  std::optional<double> ratio;  ///< its total over ours, cleared over cleared where there is one, else warm over warm
  std::string error;            ///< why there are no times
};

struct PeerScript {
  std::string python, path;
};

/// Throws InputError unless the script is there.
void require_script(const PeerScript& script);

/// Starts the script on a shape; each JSON line it prints is a peer.
std::vector<Peer> run_peers(const PeerScript& script, const ReadShape& shape, const std::string& dtype,
                            at::Device device, const Effort& effort);

}  // namespace mhar::bench
