#pragma once
#include "bench/step_gemms.h"
#include "bench/step_kinds.h"

namespace mhar::bench {

/// Bytes that one part of a step has to read and write, whatever the program.
struct FloorItem {
  std::string name;
  StepKind kind;
  double bytes;
};

struct StepSizes {
  RunConfig config;           ///< resolved
  int64_t parameters = 0;     ///< elements
  int64_t routing_heads = 0;  ///< H of depth reads; 0: a residual stream
  at::Device device = at::kCPU;
};

/// Everything of a step that is no matrix product, each buffer once a pass: an item a line of step_floor.cpp. Depth
/// reads count as the plan of the chunked engine, and as nothing where it does not take the shape.
std::vector<FloorItem> floor_items(const StepSizes& sizes);

/// The limit that a step is held against, in ms: its matrix products as the device does them alone, and all other bytes
/// at copy bandwidth (bytes per second). Nothing overlaps.
struct StepFloor {
  std::vector<FloorItem> items;
  double gemm_ms = 0, copy_bandwidth = 0;

  double ms(const FloorItem& item) const { return item.bytes / copy_bandwidth * 1e3; }
  double total_ms() const;
};

}  // namespace mhar::bench
