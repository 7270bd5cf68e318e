#include <c10/core/DeviceGuard.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "bench/read.h"
#include "cli/bench.h"
#include "cli/usage.h"
#include "config/run_config.h"
#include "train/device.h"

namespace mhar::cli {
namespace {

using json = nlohmann::ordered_json;

struct Options {
  std::string scale = "100m", dtype = "bf16", device = "auto", python, peer_script = "bench/peers/depth_reads.py";
  int64_t tokens = 0, width = 0, heads = 0, sites = 0;  // 0: the scale's
  int64_t chunk = 0, warm_up = 3, repeat = 0, threads = 0;
  bool peers = false, growth = false;
};

bench::ReadRequest request_of(const Options& options) {
  bench::ReadRequest request;
  request.shape = bench::read_shape(options.scale);
  const auto take = [](int64_t given, int64_t& value) {
    if (given > 0) value = given;
  };
  take(options.tokens, request.shape.tokens);
  take(options.width, request.shape.width);
  take(options.heads, request.shape.heads);
  take(options.sites, request.shape.sites);
  bench::check(request.shape);
  request.dtype = options.dtype;
  request.device = choose_device(options.device);
  request.chunk = options.chunk;
  const bool gpu = request.device.is_cuda();
  request.effort = {options.warm_up, options.repeat > 0 ? options.repeat : gpu ? 20 : 5};
  request.growth = options.growth;
  if (options.growth && request.shape.block > 0) {
    throw InputError({"option --growth", "", "a scale whose sites read every source", options.scale, "change --scale"});
  }
  request.composed = options.peers && request.shape.block == 0;
  if (options.peers && gpu) {
    request.script = {options.python.empty() ? default_python() : options.python, options.peer_script};
  } else if (options.peers) {
    spdlog::info("no GPU in use: {}", request.composed ? "the only peer is the composed read" : "there is no peer");
  }
  return request;
}

void put(json& line, const std::string& prefix, const bench::Passes& passes) {
  line[prefix + "forward_ms"] = passes.forward.median;
  line[prefix + "backward_ms"] = passes.backward.median;
  line[prefix + "total_ms"] = passes.total.median;
}

void put_spreads(json& line, const std::string& prefix, const bench::Passes& passes) {
  const auto pair = [](const bench::Spread& spread) { return json{spread.least, spread.most}; };
  line[prefix + "forward_ms"] = pair(passes.forward);
  line[prefix + "backward_ms"] = pair(passes.backward);
  line[prefix + "total_ms"] = pair(passes.total);
}

json line_of(const bench::Peer& peer) {
  json line{{"name", peer.name}};
  const auto put_number = [&](const char* key, const std::optional<double>& value) {
    if (value) line[key] = *value;
  };
  put_number("forward_ms", peer.forward_ms);
  put_number("backward_ms", peer.backward_ms);
  put_number("total_ms", peer.total_ms);
  put_number("warm_total_ms", peer.warm_total_ms);
  put_number("ratio", peer.ratio);
  if (!peer.error.empty()) line["error"] = peer.error;
  return line;
}

json line_of(const bench::Growth& growth) {
  json line{{"sources", growth.sources}};
  for (const auto& passes : growth.passes) {
    line["forward_ms"].push_back(passes.forward.median);
    line["backward_ms"].push_back(passes.backward.median);
    line["total_ms"].push_back(passes.total.median);
  }
  line["exponent"] = growth.exponent;
  return line;
}

json line_of(const bench::ReadRequest& request, const bench::ReadResult& result) {
  const bench::ReadShape& shape = request.shape;
  json line{{"kind", "bench read"}, {"scale", shape.scale}, {"tokens", shape.tokens}, {"width", shape.width},
            {"heads", shape.heads}, {"sites", shape.sites}, {"dtype", request.dtype}, {"kernels", result.kernels}};
  if (shape.block == 0) line["plan"] = {{"forward", result.plan.forward}, {"backward", result.plan.backward}};
  line["error_o"] = result.errors.mix;
  line["error_ds"] = result.errors.source_gradient;
  line["error_dw"] = result.errors.key_gradient;
  put(line, "", result.passes);
  if (result.warm) put(line, "warm_", *result.warm);
  put_spreads(line["spreads"], "", result.passes);
  if (result.warm) put_spreads(line["spreads"], "warm_", *result.warm);
  line["repeat"] = request.effort.repeat;
  line["bytes_forward"] = result.forward_bytes;
  line["bytes_backward"] = result.backward_bytes;
  line["copy_bandwidth"] = result.copy_bandwidth;
  line["fraction_forward"] = result.forward_fraction();
  line["fraction_backward"] = result.backward_fraction();
  line["extra_memory"] = result.extra_bytes;
  line["extra_memory_percent"] = result.extra_percent;
  if (!result.left_out.empty()) line["left_out"] = result.left_out;
  if (result.growth) line["growth"] = line_of(*result.growth);
  for (const auto& peer : result.peers) line["peers"].push_back(line_of(peer));
  describe_machine(request.device, line);
  return line;
}

std::string row(const char* name, const bench::Spread& spread, const std::optional<bench::Spread>& warm) {
  std::string text =
      fmt::format("{:<10}{:>10.3f} ms  ({:.3f} to {:.3f})", name, spread.median, spread.least, spread.most);
  if (warm) text += fmt::format("{:>12.3f} ms warm  ({:.3f} to {:.3f})", warm->median, warm->least, warm->most);
  return text + "\n";
}

std::string row(const bench::Peer& peer) {
  if (!peer.error.empty()) return fmt::format("peer      {}: {}\n", peer.name, peer.error);
  std::string text = fmt::format("peer      {}:", peer.name);
  if (peer.total_ms) text += fmt::format(" {:.3f} ms", *peer.total_ms);
  if (peer.warm_total_ms) text += fmt::format(" {:.3f} ms warm", *peer.warm_total_ms);
  if (peer.ratio) text += fmt::format(", {:.2f} times ours", *peer.ratio);
  return text + "\n";
}

std::string table(const bench::ReadRequest& request, const bench::ReadResult& r) {
  const bench::ReadShape& shape = request.shape;
  const auto warm = [&](bench::Spread bench::Passes::*part) {
    return r.warm ? std::optional(*r.warm.*part) : std::nullopt;
  };
  std::string text = fmt::format("{} tokens x {} channels, {} heads, {} sites, {}: {}\n", shape.tokens, shape.width,
                                 shape.heads, shape.sites, request.dtype, r.kernels);
  if (shape.block == 0)
    text += fmt::format("chunks    forward {}, backward {}\n", fmt::join(r.plan.forward, " "),
                        fmt::join(r.plan.backward, " "));
  text += fmt::format("errors    o {:.1e}, ds {:.1e}, dw {:.1e}\n", r.errors.mix, r.errors.source_gradient,
                      r.errors.key_gradient);
  text += row("forward", r.passes.forward, warm(&bench::Passes::forward));
  text += row("backward", r.passes.backward, warm(&bench::Passes::backward));
  text += row("total", r.passes.total, warm(&bench::Passes::total));
  text += fmt::format("of copying {:.2f} TB/s: forward {:.1f} %, backward {:.1f} %\n", r.copy_bandwidth * 1e-12,
                      100 * r.forward_fraction(), 100 * r.backward_fraction());
  text += fmt::format("memory    {:.1f} % over sources and mixes\n", r.extra_percent);
  if (!r.left_out.empty()) text += fmt::format("left out  {}\n", r.left_out);
  if (r.growth) {
    for (size_t i = 0; i < r.growth->sources.size(); ++i)
      text += fmt::format("{:>4} sources {:>10.3f} ms\n", r.growth->sources[i], r.growth->passes[i].total.median);
    text += fmt::format("exponent  {:.3f}\n", r.growth->exponent);
  }
  for (const auto& peer : r.peers) text += row(peer);
  return text;
}

int run(const Options& options) {
  const bench::ReadRequest request = request_of(options);
  make_deterministic(options.threads);
  const c10::DeviceGuard guard(request.device);
  const bench::ReadResult result = bench::bench_read(request);
  std::fputs(table(request, result).c_str(), stderr);
  fmt::print("{}\n", line_of(request, result).dump(-1, ' ', false, json::error_handler_t::replace));
  return kDone;
}

}  // namespace

Command add_bench_read(CLI::App& bench) {
  auto options = std::make_shared<Options>();
  auto* command = bench.add_subcommand(
      "read", "All depth reads of a microbatch, forward and backward: a table on standard error, then one JSON line");
  const auto extent = [&](const char* name, int64_t& value, const char* help) {
    command->add_option(name, value, help)->check(whole_from(0))->capture_default_str();
  };
  command->add_option("--scale", options->scale, "Row of the table of scales, or gated block reads at 8b")
      ->check(one_of(bench::read_scales()))
      ->capture_default_str();
  extent("--tokens", options->tokens, "Tokens of a microbatch (P); 0: the scale's");
  extent("--width", options->width, "Channels (D); 0: the scale's");
  extent("--heads", options->heads, "Routing heads (H), a divisor of the width; 0: the scale's");
  extent("--sites", options->sites, "Read sites (R), as many as sources; 0: the scale's");
  command->add_option("--chunk", options->chunk, "Sites of a chunk; 0: planned")
      ->check(whole_from(0, kernels::kMostNear))
      ->capture_default_str();
  command->add_option("--dtype", options->dtype, "Storage type of sources and mixes")
      ->check(one_of({"bf16", "fp16", "fp32"}))
      ->capture_default_str();
  command->add_option("--warm-up", options->warm_up, "Passes that are not counted")
      ->check(whole_from(0))
      ->capture_default_str();
  command->add_option("--repeat", options->repeat, "Passes that are; 0: 20 on a GPU, 5 on the CPU")
      ->check(whole_from(0))
      ->capture_default_str();
  command->add_flag("--growth", options->growth, "Also 25, 50, 100, 200 and 400 sources, and the exponent of the time");
  command->add_flag("--peers", options->peers,
                    "Also the composed read, and on a GPU the reads of others, by a script in a process of its own");
  command->add_option("--python", options->python, "Python of that script; left out: .venv/bin/python, else python3");
  command->add_option("--peer-script", options->peer_script, "That script")->capture_default_str();
  command->add_option("--device", options->device, "auto, cpu, cuda or cuda:N")->capture_default_str();
  command->add_option("--threads", options->threads, "CPU threads; 0: one per core")
      ->check(whole_from(0, kMostThreads))
      ->capture_default_str();
  return [options] { return run(*options); };
}

}  // namespace mhar::cli
