#pragma once
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_step_report.h"

namespace mhar::cli {

/// The MHAR paper's Tables 4 and 8, cost of training on an H100: tokens per second of its standard model, MHAR's times
/// that, and peak memory in GB. Nothing where it gives no number.
struct PublishedCost {
  std::string scale;
  double standard_tokens_per_s;
  std::optional<double> eager, compiled, fused;
  double standard_gb;
  std::optional<double> eager_gb, compiled_gb, fused_gb;
};
const std::vector<PublishedCost>& published_costs();

/// Its Table 5, all depth reads of a microbatch on an H100 in ms, at a microbatch of its own.
struct PublishedReads {
  std::string scale;   ///< as in bench/shapes.h
  int64_t microbatch;  ///< windows; 0: that of the shape
  double compiled_ms, fused_ms;
};
const std::vector<PublishedReads>& published_reads();

struct ReadRow {
  PublishedReads published;
  double ms;       ///< ours at the paper's microbatch, with a cleared cache
  double full_ms;  ///< and at the scale's
};
/// Reads of a published row in the configuration's precision, on its device, with its shape where that was given.
ReadRow measure_reads(const RunConfig& config, const PublishedReads& published, const bench::Effort& effort);

/// Markdown. Reports stand in the order of published_costs().
std::string cost_table(const std::vector<StepReport>& reports);
std::string reads_table(const std::vector<ReadRow>& rows);

}  // namespace mhar::cli
