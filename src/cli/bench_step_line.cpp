#include "cli/bench.h"
#include "cli/bench_step_report.h"

namespace mhar::cli {
namespace {

using json = nlohmann::ordered_json;

json line_of(const bench::StepProfile& profile) {
  if (!profile.missing.empty()) return {{"missing", profile.missing}};
  json line;
  for (const bench::StepKind kind : bench::kStepKinds) line["ms"][bench::name_of(kind)] = profile.of(kind);
  line["busy_ms"] = profile.busy;
  line["idle_ms"] = profile.idle;
  line["kernels"] = json::array();
  for (const auto& kernel : profile.kernels) {
    line["kernels"].push_back({{"name", kernel.name},
                               {"kind", bench::name_of(kernel.kind)},
                               {"ms", kernel.ms},
                               {"launches", kernel.launches}});
  }
  return line;
}

json line_of(const DesignReport& design, const bench::StepPeer& peer) {
  json line{{"name", peer.name}};
  const auto put = [&](const char* key, const std::optional<double>& value) {
    if (value) line[key] = *value;
  };
  put("ms", peer.ms);
  if (peer.least && peer.most) line["spread"] = {*peer.least, *peer.most};
  if (peer.ms) line["tokens_per_s"] = static_cast<double>(design.tokens()) / (*peer.ms * 1e-3);
  put("peak_bytes", peer.peak_bytes);
  put("reserved_bytes", peer.reserved_bytes);
  if (peer.ms) line["ratio"] = *peer.ms / design.times.ms.median;
  if (!peer.attention.empty()) line["attention"] = peer.attention;
  if (!peer.error.empty()) line["error"] = peer.error;
  return line;
}

void put_limit(json& line, const StepReport& report, const DesignReport& design) {
  line["model_flops"] = design.flops.total();
  line["read_flops"] = design.times.read_flops;
  line["mfu"] = design.flops.total() / (design.times.ms.median * 1e-3) / report.gemms.peak;
  line["gemm_peak"] = report.gemms.peak;
  line["gemm_peak_size"] = report.gemms.peak_size;
  line["copy_bandwidth"] = report.copy_bandwidth;
  for (const auto& one : report.gemms.products) {
    line["gemms"][one.name] = {{"y_ms", one.forward_ms}, {"dx_ms", one.input_ms}, {"dw_ms", one.weight_ms}};
  }
  line["limit_ms"] = design.floor.total_ms();
  line["limit_percent"] = design.limit_percent();
  json items{{"gemm", {{"kind", bench::name_of(bench::StepKind::gemm)}, {"ms", design.floor.gemm_ms}}}};
  for (const auto& item : design.floor.items) {
    items[item.name] = {{"kind", bench::name_of(item.kind)}, {"bytes", item.bytes}, {"ms", design.floor.ms(item)}};
  }
  line["limit"] = std::move(items);
}

}  // namespace

json line_of(const StepReport& report, const DesignReport& design) {
  const RunConfig& c = design.config;
  const bench::StepTimes& t = design.times;
  json line{{"kind", "bench step"},
            {"scale", c.scale},
            {"design", c.design},
            {"microbatch", c.microbatch},
            {"sequence", c.sequence},
            {"accumulate", c.accumulation()},
            {"precision", c.precision},
            {"options", report.options},
            {"parameters", t.parameters},
            {"steps", report.effort.repeat},
            {"warm_up", report.effort.warm_up},
            {"attention", t.attention},
            {"reads", t.reads},
            {"cuda_graph", t.replayed},
            {"step_ms", t.ms.median},
            {"spread", {t.ms.least, t.ms.most}},
            {"wall_ms", t.wall_ms},
            {"tokens_per_s", design.tokens_per_s()},
            {"first_loss", t.first_loss},
            {"last_loss", t.last_loss}};
  if (t.memory.peak > 0) {
    line["peak_bytes"] = t.memory.peak;
    line["steps_peak_bytes"] = t.memory.steps_peak;
    line["reserved_bytes"] = t.memory.reserved;
  }
  put_limit(line, report, design);
  if (design.profile) line["profile"] = line_of(*design.profile);
  for (const DesignReport& other : report.designs) {
    if (&other != &design) line["against"][other.config.design] = other.times.ms.median / t.ms.median;
  }
  for (const auto& peer : report.peers) line["peers"].push_back(line_of(design, peer));
  if (const auto* peer = bench::headline_peer(report.peers)) {
    line["headline"] = {{"peer", peer->name}, {"ratio", *peer->ms / t.ms.median}};
  }
  describe_machine(report.device, line);
  return line;
}

}  // namespace mhar::cli
