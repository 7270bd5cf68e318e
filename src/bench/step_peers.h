#pragma once
#include "bench/peers.h"
#include "config/run_config.h"

namespace mhar::bench {

/// Training steps of the same model by somebody else; what was not measured is absent.
struct StepPeer {
  std::string name;
  std::optional<double> ms, least, most;
  std::optional<double> peak_bytes, reserved_bytes;
  std::string attention;  ///< its kernel, where it was chosen
  std::string error;      ///< why there are no times
  /// One of the two that the headline is about: the standard model under torch.compile as anybody would call it.
  bool headline = false;
};

struct StepPeerRequest {
  PeerScript script;
  RunConfig config;  ///< resolved; the design plays no part
  at::Device device = at::kCPU;
  Effort effort;
  std::string only;           ///< names of the script's peers with commas between; empty: all
  int64_t limit_seconds = 0;  ///< for all of them together; 0: none
};

/// Throws InputError unless the script is there, runs and knows these peers (with commas between; empty: all).
void require_step_peers(const PeerScript& script, const std::string& only);

/// Hands over each peer as soon as it is measured.
void run_step_peers(const StepPeerRequest& request, const std::function<void(const StepPeer&)>& take);

/// The fastest of those that the headline is about; null where none was measured.
const StepPeer* headline_peer(const std::vector<StepPeer>& peers);

}  // namespace mhar::bench
