#include "bench/step_gemms.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>

#include "bench/timing.h"
#include "ops/device_graph.h"
#include "train/device.h"

namespace mhar::bench {
namespace {

// The logits of all tokens need not fit a device: of a longer batch this part is measured.
constexpr int64_t kMostOutputBytes = int64_t{6} << 30;

// Milliseconds of one of several in a row. On a GPU they are one recording, as in a training step: launched one by one,
// small products would wait for the host.
double time_of(at::Device device, const std::function<void()>& work) {
  const int64_t repeat = device.is_cuda() ? 20 : 2;
  const auto all = [&] {
    for (int64_t i = 0; i < repeat; ++i) work();
  };
  work();
  const auto graph = device.is_cuda() ? ops::record(device, all) : nullptr;
  Clock clock(device);
  if (graph) graph->replay();
  clock.start();
  graph ? graph->replay() : all();
  return clock.stop() / static_cast<double>(repeat);
}

at::Tensor random(int64_t rows, int64_t columns, const at::TensorOptions& options) {
  return at::randn({rows, columns}, options).mul_(0.05);
}

GemmRates::Product measure(const StepMatrix& matrix, int64_t tokens, int64_t passes, const at::TensorOptions& options) {
  const int64_t row_bytes = matrix.out * static_cast<int64_t>(options.dtype().itemsize());
  const int64_t rows = std::clamp<int64_t>(kMostOutputBytes / row_bytes, 1, tokens);
  const at::Tensor weight = random(matrix.out, matrix.in, options), x = random(rows, matrix.in, options);
  const at::Tensor dy = random(rows, matrix.out, options);
  at::Tensor y = at::empty_like(dy), dx = at::empty_like(x), dw = at::empty_like(weight);
  const double share = static_cast<double>(tokens) / static_cast<double>(rows);
  const double times = share * static_cast<double>(matrix.copies * passes);
  const at::Device device = options.device();
  return {.name = matrix.name,
          .forward_ms = times * time_of(device, [&] { at::mm_out(y, x, weight.t()); }),
          .input_ms = times * time_of(device, [&] { at::mm_out(dx, dy, weight); }),
          .weight_ms = times * time_of(device, [&] { at::mm_out(dw, dy.t(), x); }),
          .flops = 6.0 * static_cast<double>(tokens * passes) * static_cast<double>(matrix.weights())};
}

double peak_rate(int64_t size, const at::TensorOptions& options) {
  const at::Tensor a = random(size, size, options), b = random(size, size, options);
  at::Tensor c = at::empty_like(a);
  const double n = static_cast<double>(size);
  return 2 * n * n * n / (time_of(options.device(), [&] { at::mm_out(c, a, b.t()); }) * 1e-3);
}

}  // namespace

std::vector<StepMatrix> matrices(const ModelConfig& m) {
  const int64_t queries = m.heads * m.head_dim, keys = m.kv_heads * m.head_dim;
  return {{"qkv", queries + 2 * keys, m.width, m.layers},
          {"attention out", m.width, queries, m.layers},
          {"gate and up", 2 * m.ffn, m.width, m.layers},
          {"down", m.width, m.ffn, m.layers},
          {"head", m.vocabulary, m.width, 1}};
}

StepFlops step_flops(const RunConfig& config) {
  const ModelConfig m = config.model();
  const auto windows = static_cast<double>(config.global_batch), length = static_cast<double>(config.sequence);
  StepFlops flops;
  for (const StepMatrix& one : matrices(m)) flops.gemm += 6 * windows * length * static_cast<double>(one.weights());
  // Scores and mix of a window: 2 products of T x T x (heads k), of which causality leaves T (T + 1) / 2 pairs; twice
  // as much backward.
  const double pairs = length * (length + 1) / 2;
  flops.attention = 3 * 2 * 2 * windows * pairs * static_cast<double>(m.heads * m.head_dim * m.layers);
  return flops;
}

double GemmRates::total_ms() const {
  double sum = 0;
  for (const Product& one : products) sum += one.forward_ms + one.input_ms + one.weight_ms;
  return sum;
}

GemmRates measure_gemms(const RunConfig& config, at::Device device) {
  const at::NoGradGuard no_gradient;
  const auto options = at::TensorOptions(device).dtype(precision_type(config.precision));
  GemmRates rates;
  rates.peak_size = device.is_cuda() ? 8192 : 1024;  // a CPU would take seconds for the larger one
  rates.peak = peak_rate(rates.peak_size, options);
  for (const StepMatrix& one : matrices(config.model())) {
    rates.products.push_back(measure(one, config.microbatch * config.sequence, config.accumulation(), options));
    release_memory(device);
  }
  return rates;
}

}  // namespace mhar::bench
