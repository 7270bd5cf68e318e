#include "bench/read.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <cmath>
#include <memory>

#include "base/error.h"
#include "bench/composed_reads.h"

namespace mhar::bench {
namespace {

at::ScalarType type_of(const std::string& dtype) {
  if (dtype == "bf16") return at::kBFloat16;
  return dtype == "fp16" ? at::kHalf : at::kFloat;
}

Setup set_up(const ReadRequest& request, int64_t sites) {
  const ReadShape& shape = request.shape;
  Setup setup;
  setup.reads = {sites, shape.width, shape.heads};
  setup.reads.chunk = request.chunk;
  setup.type = type_of(request.dtype);
  setup.device = request.device;
  setup.engine = ops::depth_engine(setup.reads, shape.tokens, setup.type, request.device);
  if (!setup.engine.kernels) {
    throw InputError({"bench read", "", "a shape that kernels of this build take", setup.engine.passed_over,
                      "change --heads, --width, --dtype or --device"});
  }
  const int64_t longest = setup.engine.kernels->longest_chunk;
  if (request.chunk > longest) {
    throw InputError({"option --chunk", "", "at most " + std::to_string(longest) + " with " + setup.engine.name(),
                      std::to_string(request.chunk), "change --chunk"});
  }
  setup.plan = ops::depth_plan(setup.engine, setup.reads, sites, shape.tokens, setup.type);
  return setup;
}

void require_right(const ReadErrors& errors, at::ScalarType type) {
  const double limit = error_limit(type);
  if (errors.worst() <= limit) return;
  throw std::runtime_error(
      describe({"bench read", "reference check", c10::str("relative errors of at most ", limit),
                c10::str("o ", errors.mix, ", ds ", errors.source_gradient, ", dw ", errors.key_gradient),
                "report it with this command line: wrong results are not timed"}));
}

Passes cleared(Subject& subject, const ReadRequest& request) {
  if (!request.device.is_cuda()) return measure(subject, request.device, nullptr, request.effort);
  Sweep sweep(request.device);
  return measure(subject, request.device, &sweep, request.effort);
}

void time_subject(Subject& subject, const ReadRequest& request, ReadResult& result) {
  result.passes = cleared(subject, request);
  if (request.device.is_cuda()) result.warm = measure(subject, request.device, nullptr, request.effort);
}

void time_full(const Setup& setup, const ReadRequest& request, ReadResult& result) {
  const int64_t tokens = request.shape.tokens;
  result.plan = setup.plan;
  result.errors = check_full(setup, tokens_to_check(request.shape));
  require_right(result.errors, setup.type);
  FullReads reads(setup, tokens);
  time_subject(reads, request, result);
  const auto sizes = ops::depth_sizes(setup.reads, tokens, setup.type);
  result.forward_bytes = kernels::depth_forward_bytes(*setup.engine.kernels, sizes, setup.plan);
  result.backward_bytes = kernels::depth_backward_bytes(*setup.engine.kernels, sizes, setup.plan);
  result.extra_bytes = reads.extra_bytes();
  result.extra_percent = 100.0 * static_cast<double>(result.extra_bytes) /
                         static_cast<double>(reads.sources.nbytes() + reads.mixes.nbytes());
}

void time_delta(const Setup& setup, const ReadRequest& request, ReadResult& result) {
  result.errors = check_delta(setup, request.shape, tokens_to_check(request.shape));
  require_right(result.errors, setup.type);
  DeltaReads reads(setup, request.shape, request.shape.tokens);
  time_subject(reads, request, result);
  result.forward_bytes = reads.forward_bytes();
  result.backward_bytes = reads.backward_bytes();
  result.extra_bytes = reads.extra_bytes();
  result.extra_percent = 100.0 * static_cast<double>(result.extra_bytes) / static_cast<double>(reads.kept_bytes());
  result.left_out = DeltaReads::left_out;
}

// On a GPU its launches are too many for the queue to run ahead of the sweeps, whose time could not be taken off.
Peer time_composed(const Setup& setup, const ReadRequest& request) {
  Peer peer;
  peer.name = "composed";
  try {
    ComposedReads reads(setup, request.shape.tokens);
    const Passes passes = measure(reads, request.device, nullptr, request.effort);
    if (request.device.is_cuda()) {
      peer.warm_total_ms = passes.total.median;
    } else {
      peer.forward_ms = passes.forward.median;
      peer.backward_ms = passes.backward.median;
      peer.total_ms = passes.total.median;
    }
  } catch (const c10::OutOfMemoryError&) {
    peer.error = "out of memory";
  }
  release_memory(request.device);
  return peer;
}

void compare(const ReadResult& result, Peer& peer) {
  if (peer.total_ms) {
    peer.ratio = *peer.total_ms / result.passes.total.median;
  } else if (peer.warm_total_ms && result.warm) {
    peer.ratio = *peer.warm_total_ms / result.warm->total.median;
  }
}

// Sources, their copy and mixes; what else there is stays below a tenth of that. A GPU says itself when it is full.
bool memory_for(const ReadRequest& request, int64_t sites) {
  if (request.device.is_cuda()) return true;
  const double there = static_cast<double>(::sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  const double value = static_cast<double>(request.shape.tokens) * static_cast<double>(request.shape.width) * 4;
  return 3.3 * static_cast<double>(sites) * value < there;
}

double slope(const Growth& growth) {
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (size_t i = 0; i < growth.sources.size(); ++i) {
    const double a = std::log(static_cast<double>(growth.sources[i])), b = std::log(growth.passes[i].total.median);
    n += 1, x += a, y += b, xx += a * a, xy += a * b;
  }
  return n < 2 ? 0.0 : (n * xy - x * y) / (n * xx - x * x);
}

Growth measure_growth(const ReadRequest& request) {
  Growth growth;
  for (const int64_t sites : {25, 50, 100, 200, 400}) {
    if (!memory_for(request, sites)) break;
    try {
      FullReads reads(set_up(request, sites), request.shape.tokens);
      growth.passes.push_back(cleared(reads, request));
      growth.sources.push_back(sites);
    } catch (const c10::OutOfMemoryError&) {
      break;
    }
    release_memory(request.device);
  }
  growth.exponent = slope(growth);
  return growth;
}

double fraction(int64_t bytes, const Spread& ms, double bandwidth) {
  return static_cast<double>(bytes) / (ms.median * 1e-3) / bandwidth;
}

}  // namespace

double ReadResult::forward_fraction() const { return fraction(forward_bytes, passes.forward, copy_bandwidth); }
double ReadResult::backward_fraction() const { return fraction(backward_bytes, passes.backward, copy_bandwidth); }

ReadResult bench_read(const ReadRequest& request) {
  check(request.shape);
  if (request.script) require_script(*request.script);
  const bool full = request.shape.block == 0;
  const Setup setup = set_up(request, request.shape.sites);
  ReadResult result;
  result.kernels = setup.engine.name();
  {
    at::NoGradGuard no_gradient;
    result.copy_bandwidth = copy_bandwidth(request.device);
    release_memory(request.device);
    (full ? time_full : time_delta)(setup, request, result);
    release_memory(request.device);
    if (request.growth) result.growth = measure_growth(request);
  }
  if (request.composed) result.peers.push_back(time_composed(setup, request));
  if (request.script) {
    auto others = run_peers(*request.script, request.shape, request.dtype, request.device, request.effort);
    result.peers.insert(result.peers.end(), others.begin(), others.end());
  }
  for (Peer& peer : result.peers) compare(result, peer);
  return result;
}

}  // namespace mhar::bench
