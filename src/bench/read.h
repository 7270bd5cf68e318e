#pragma once
#include "bench/peers.h"
#include "bench/read_check.h"

namespace mhar::bench {

struct ReadRequest {
  ReadShape shape;
  std::string dtype = "bf16";  ///< bf16, fp16 or fp32
  at::Device device = at::kCPU;
  int64_t chunk = 0;  ///< 0: planned
  Effort effort;
  // Where sites read every source:
  bool growth = false;
  bool composed = false;  ///< measures the composed reads beside them
  std::optional<PeerScript> script;
};

/// Times over the number of sources at one P and D.
struct Growth {
  std::vector<int64_t> sources;
  std::vector<Passes> passes;
  double exponent = 0;  ///< of the least-squares line of log total over log sources; 0 below two points
};

struct ReadResult {
  std::string kernels;
  kernels::DepthPlan plan;
  ReadErrors errors;
  Passes passes;               ///< each site with a cleared cache; on the CPU nothing is cleared
  std::optional<Passes> warm;  ///< without clearing
  int64_t forward_bytes = 0, backward_bytes = 0;
  double copy_bandwidth = 0;  ///< bytes per second
  int64_t extra_bytes = 0;
  double extra_percent = 0;  ///< of sources and mixes
  std::string left_out;      ///< work of a training step that the shape's passes do not contain
  std::vector<Peer> peers;
  std::optional<Growth> growth;

  double forward_fraction() const;  ///< bytes over time, as a part of the copy bandwidth
  double backward_fraction() const;
};

/// Measures on an idle device. Throws InputError for what no kernels take and std::runtime_error for wrong results.
ReadResult bench_read(const ReadRequest& request);

}  // namespace mhar::bench
