#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/step.h"
#include "bench/step_floor.h"
#include "bench/step_peers.h"

namespace mhar::cli {

inline constexpr size_t kListedKernels = 12;  ///< in the table; the line has all

/// What `mhar bench step` found for one design.
struct DesignReport {
  RunConfig config;
  bench::StepTimes times;
  bench::StepFlops flops;
  bench::StepFloor floor;
  std::optional<bench::StepProfile> profile;

  int64_t tokens() const { return config.global_batch * config.sequence; }
  double tokens_per_s() const { return static_cast<double>(tokens()) / (times.ms.median * 1e-3); }
  double limit_percent() const { return 100 * floor.total_ms() / times.ms.median; }
};

/// And for all of them.
struct StepReport {
  at::Device device = at::kCPU;
  bench::Effort effort;
  nlohmann::ordered_json options;  ///< those whose value is not the default of `mhar train`
  bench::GemmRates gemms;
  double copy_bandwidth = 0;
  std::vector<DesignReport> designs;
  std::vector<bench::StepPeer> peers;
};

std::string table(const bench::GemmRates& gemms, double copy_bandwidth);
std::string table(const StepReport& report, const DesignReport& design);
std::string profile_table(const DesignReport& design);
std::string row(const StepReport& report, const bench::StepPeer& peer);
/// Ratios between the designs, and against the fastest of the peers that the headline is about.
std::string headline(const StepReport& report);

nlohmann::ordered_json line_of(const StepReport& report, const DesignReport& design);

}  // namespace mhar::cli
