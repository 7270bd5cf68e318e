#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "cli/bench.h"
#include "cli/bench_step_options.h"
#include "cli/bench_step_report.h"
#include "cli/bench_step_tables.h"
#include "cli/usage.h"
#include "train/device.h"
#include "train/recorded_update.h"

namespace mhar::cli {
namespace {

using json = nlohmann::ordered_json;

void show(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

DesignReport measure(const RunConfig& config, const StepReport& report) {
  DesignReport design{.config = config, .times = {}, .flops = bench::step_flops(config), .floor = {}, .profile = {}};
  design.times = bench::time_steps({config, report.device, report.effort});
  bench::release_memory(report.device);
  const bench::StepSizes sizes{config, design.times.parameters, design.times.routing_heads, report.device};
  design.floor = {bench::floor_items(sizes), report.gemms.total_ms(), report.copy_bandwidth};
  return design;
}

void measure_profiles(StepReport& report) {
  for (DesignReport& design : report.designs) {
    design.profile = bench::profile_steps({design.config, report.device, report.effort});
    bench::release_memory(report.device);
    show(profile_table(design));
  }
}

void measure_peers(const StepOptions& options, StepReport& report) {
  bench::run_step_peers({script_of(options), report.designs.front().config, report.device, report.effort,
                         options.peer_only, options.limit_seconds},
                        [&](const bench::StepPeer& peer) {
                          show(row(report, peer));
                          report.peers.push_back(peer);
                        });
}

StepReport measure_scale(const StepOptions& options, const RunConfig& config) {
  const auto configs = one_a_design(config, options.designs);
  StepReport report;
  report.device = choose_device(config.device);
  report.effort = {options.warm_up, options.steps};
  report.options = uncommon(config);
  report.copy_bandwidth = bench::copy_bandwidth(report.device);
  bench::release_memory(report.device);
  report.gemms = bench::measure_gemms(configs.front(), report.device);
  show(table(report.gemms, report.copy_bandwidth));
  for (const RunConfig& one : configs) {
    report.designs.push_back(measure(one, report));
    show(table(report, report.designs.back()));
  }
  if (options.profile) measure_profiles(report);
  if (options.peers) measure_peers(options, report);
  show(headline(report));
  for (const DesignReport& design : report.designs) {
    fmt::print("{}\n", line_of(report, design).dump(-1, ' ', false, json::error_handler_t::replace));
  }
  std::fflush(stdout);
  return report;
}

// Every scale of a published table, at its own shape and then, for reads, at that of the table of scales.
void measure_table(const StepOptions& options, RunConfig config) {
  if (options.given.contains("scale")) {
    throw InputError({"option --table", options.table, "the scales of that table", "--scale", "leave --scale out"});
  }
  if (options.table == "5") {
    std::vector<ReadRow> rows;
    for (const PublishedReads& published : published_reads()) {
      rows.push_back(measure_reads(config, published, {options.warm_up, options.steps}));
    }
    return show(reads_table(rows));
  }
  std::vector<StepReport> reports;
  for (const PublishedCost& published : published_costs()) {
    config.scale = published.scale;
    reports.push_back(measure_scale(options, config));
  }
  show(cost_table(reports));
}

int run(const StepOptions& options) {
  const RunConfig config = configured(options);
  one_a_design(config, options.designs);  // refuses what cannot be, before anything is measured
  if (options.peers) bench::require_step_peers(script_of(options), options.peer_only);
  const at::Device device = choose_device(config.device);
  if (device.is_cuda() && config.cuda_graph && options.warm_up <= kEagerUpdates) {
    throw InputError({"option --warm-up", "", fmt::format("more than {} with a CUDA graph", kEagerUpdates),
                      std::to_string(options.warm_up), "leave it out, or add --cuda-graph false"});
  }
  make_deterministic(config.threads);
  const c10::DeviceGuard guard(device);
  if (options.table.empty()) {
    measure_scale(options, config);
  } else {
    measure_table(options, config);
  }
  return kDone;
}

}  // namespace

Command add_bench_step(CLI::App& bench) {
  auto options = std::make_shared<StepOptions>();
  options->designs = default_designs();
  auto* command = bench.add_subcommand(
      "step", "Whole training steps of the trainer on random tokens: tables on standard error, a JSON line a design");
  command->add_option("--design", options->designs, "Designs to measure, with commas between")->capture_default_str();
  command->add_option("--steps", options->steps, "Steps that are timed")->check(whole_from(1))->capture_default_str();
  command->add_option("--warm-up", options->warm_up, "Steps before; a CUDA graph is recorded in the fourth")
      ->check(whole_from(1))
      ->capture_default_str();
  command->add_option("--table", options->table, "The paper's table of this number at its scales, beside our figures")
      ->check(one_of({"4", "5", "8"}));
  command->add_flag("--profile", options->profile, "Also where the time goes: three more steps, kernel by kernel");
  command->add_flag("--peers", options->peers, "Also steps of PyTorch models, by a script in a process of its own");
  command->add_option("--peer-only", options->peer_only,
                      "Only these of its peers, named as in docs/benchmarks.md, with commas between");
  command->add_option("--limit-seconds", options->limit_seconds, "For all peers together; 0: no limit")
      ->check(whole_from(0))
      ->capture_default_str();
  command->add_option("--python", options->python, "Python of that script; left out: .venv/bin/python, else python3");
  command->add_option("--peer-script", options->peer_script, "That script")->capture_default_str();
  add_training_options(*command, options);
  return [options] { return run(*options); };
}

}  // namespace mhar::cli
