#include <fmt/format.h>

#include "cli/bench_step_report.h"

namespace mhar::cli {
namespace {

double gigabytes(int64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

double limit_ms(const DesignReport& design, bench::StepKind kind) {
  double ms = kind == bench::StepKind::gemm ? design.floor.gemm_ms : 0;
  for (const auto& item : design.floor.items) ms += item.kind == kind ? design.floor.ms(item) : 0;
  return ms;
}

}  // namespace

std::string table(const bench::GemmRates& gemms, double copy_bandwidth) {
  std::string text = fmt::format("copying {:.3f} TB/s, a product of {}^3 {:.2f} TFLOP/s\n", copy_bandwidth * 1e-12,
                                 gemms.peak_size, gemms.peak * 1e-12);
  for (const auto& one : gemms.products) {
    const double ms = one.forward_ms + one.input_ms + one.weight_ms;
    text += fmt::format("  {:<14} y {:.3f}, dx {:.3f}, dw {:.3f} ms a step: {:.2f} TFLOP/s\n", one.name, one.forward_ms,
                        one.input_ms, one.weight_ms, one.flops / (ms * 1e-3) * 1e-12);
  }
  return text;
}

std::string table(const StepReport& report, const DesignReport& design) {
  const bench::StepTimes& t = design.times;
  const RunConfig& c = design.config;
  std::string text =
      fmt::format("{} {}: {} x {} x {} tokens, {}, {:.1f} M parameters, attention {}{}{}\n", c.design, c.scale,
                  c.accumulation(), c.microbatch, c.sequence, c.precision, static_cast<double>(t.parameters) * 1e-6,
                  t.attention, t.reads.empty() ? "" : ", depth reads " + t.reads, t.replayed ? ", CUDA graph" : "");
  text += fmt::format("step      {:.3f} ms  ({:.3f} to {:.3f}), {:.3f} ms by the wall clock, {:.0f} tokens/s\n",
                      t.ms.median, t.ms.least, t.ms.most, t.wall_ms, design.tokens_per_s());
  text += fmt::format("loss      {:.4f} at first, {:.4f} at last\n", t.first_loss, t.last_loss);
  if (t.memory.peak > 0) {
    text += fmt::format("memory    {:.3f} GB at most, {:.3f} GB in the timed steps, {:.3f} GB of the device\n",
                        gigabytes(t.memory.peak), gigabytes(t.memory.steps_peak), gigabytes(t.memory.reserved));
  }
  text += fmt::format("MFU       {:.1f} %\n", 100 * design.flops.total() / (t.ms.median * 1e-3) / report.gemms.peak);
  text += fmt::format("limit     {:.3f} ms: {:.1f} % of it reached\n", design.floor.total_ms(), design.limit_percent());
  text += fmt::format("  {:<28}{:>9.3f} ms\n", "matrix products, alone", design.floor.gemm_ms);
  for (const auto& item : design.floor.items) {
    text += fmt::format("  {:<28}{:>9.3f} ms\n", item.name, design.floor.ms(item));
  }
  return text;
}

std::string profile_table(const DesignReport& design) {
  const bench::StepProfile& profile = *design.profile;
  std::string text = fmt::format("{}: ", design.config.design);
  if (!profile.missing.empty()) return text + fmt::format("no profile: {}\n", profile.missing);
  text += fmt::format("profiled ms a step, {:.3f} busy\n{:<12}{:>9}{:>9}\n", profile.busy, "", "took", "limit");
  for (const bench::StepKind kind : bench::kStepKinds) {
    text += fmt::format("  {:<10}{:>9.3f}{:>9.3f}\n", bench::name_of(kind), profile.of(kind), limit_ms(design, kind));
  }
  text += fmt::format("  {:<10}{:>9.3f}\n", "idle", profile.idle);
  for (size_t i = 0; i < std::min(kListedKernels, profile.kernels.size()); ++i) {
    const auto& kernel = profile.kernels[i];
    text += fmt::format("  {:>8.3f} ms x{:<6.1f} {:<10} {:.90}\n", kernel.ms, kernel.launches,
                        bench::name_of(kernel.kind), kernel.name);
  }
  return text;
}

std::string row(const StepReport& report, const bench::StepPeer& peer) {
  if (!peer.error.empty() || !peer.ms) return fmt::format("peer      {}: {}\n", peer.name, peer.error);
  std::string text = fmt::format("peer      {}: {:.3f} ms", peer.name, *peer.ms);
  if (peer.least && peer.most) text += fmt::format("  ({:.3f} to {:.3f})", *peer.least, *peer.most);
  if (peer.peak_bytes) text += fmt::format(", {:.3f} GB", *peer.peak_bytes * 1e-9);
  if (!peer.attention.empty()) text += ", attention " + peer.attention;
  for (const DesignReport& design : report.designs) {
    text += fmt::format(", {} {:.3f}x", design.config.design, *peer.ms / design.times.ms.median);
  }
  return text + "\n";
}

std::string headline(const StepReport& report) {
  std::string text;
  const DesignReport& first = report.designs.front();
  const bench::StepPeer* peer = bench::headline_peer(report.peers);
  for (const DesignReport& design : report.designs) {
    const double ms = design.times.ms.median;
    text += fmt::format("{:<10}{:.3f} ms, {:.0f} tokens/s", design.config.design, ms, design.tokens_per_s());
    if (&design != &first) text += fmt::format(", {:.3f} times {}", first.times.ms.median / ms, first.config.design);
    if (peer) text += fmt::format(", {:.3f} times the best compiled peer: {}", *peer->ms / ms, peer->name);
    text += "\n";
  }
  return text;
}

}  // namespace mhar::cli
