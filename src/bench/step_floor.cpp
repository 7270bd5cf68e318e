#include "bench/step_floor.h"

#include "kernels/depth_read/plan.h"
#include "ops/depth_engine.h"
#include "train/device.h"

namespace mhar::bench {
namespace {

// Letters of docs/method.md: P tokens of a microbatch, D width, F inner width, L layers, V vocabulary, n query and G
// key/value heads of k channels. A is the number of microbatches, E the bytes of a value.
struct Letters {
  double P, D, F, L, V, n, G, k, A, E;
};

Letters letters(const StepSizes& sizes) {
  const RunConfig& c = sizes.config;
  const ModelConfig m = c.model();
  const auto real = [](int64_t whole) { return static_cast<double>(whole); };
  return {real(c.microbatch * c.sequence),
          real(m.width),
          real(m.ffn),
          real(m.layers),
          real(m.vocabulary),
          real(m.heads),
          real(m.kv_heads),
          real(m.head_dim),
          real(c.accumulation()),
          c.precision == "bf16" ? 2.0 : 4.0};
}

double stream_bytes(const Letters& z) {
  const double rows = z.P * z.D * z.E, sublayers = 2 * z.L;
  // The first norm reads the embedding and writes y; backward it reads x, dy and the stream's gradient and writes one.
  const double first = 2 + 4;
  // Every other one reads stream and output and writes sum and y; backward x, dy and the sum's gradient in, one out.
  const double later = 4 + 4;
  return (first + sublayers * later - 1) * rows;  // nothing adds to the last sum, so it has no gradient but its norm's
}

double read_bytes(const StepSizes& sizes, const Letters& z) {
  const ModelConfig m = sizes.config.model();
  const ops::DepthReads reads{m.sites(), m.width, sizes.routing_heads, m.norm_eps, m.read_chunk};
  const auto tokens = static_cast<int64_t>(z.P);
  const at::ScalarType type = precision_type(sizes.config.precision);
  const auto engine = ops::depth_engine(reads, tokens, type, sizes.device);
  if (!engine.kernels) return 0;
  const auto shape = ops::depth_sizes(reads, tokens, type);
  const auto plan = ops::depth_plan(engine, reads, m.sites(), tokens, type);
  return static_cast<double>(kernels::depth_forward_bytes(*engine.kernels, shape, plan) +
                             kernels::depth_backward_bytes(*engine.kernels, shape, plan));
}

}  // namespace

std::vector<FloorItem> floor_items(const StepSizes& sizes) {
  const Letters z = letters(sizes);
  const double rows = z.A * z.P * z.E;  // bytes of a column over all microbatches
  const double q = z.n * z.k, kv = z.G * z.k, statistics = z.A * z.P * z.n * 4;
  const bool normed = sizes.config.qk_norm, masters = sizes.config.rounding == "master";
  const double moment = masters || sizes.config.moments == "fp32" ? 4 : z.E, gradient = z.A > 1 ? 4 : z.E;
  const auto parameters = static_cast<double>(sizes.parameters);
  std::vector<FloorItem> items;
  const auto add = [&](const char* name, StepKind kind, double bytes) { items.push_back({name, kind, bytes}); };

  // q, k and v in, o out; and the logarithms of the softmax's sums.
  add("attention forward", StepKind::attention, z.L * (rows * (2 * q + 2 * kv) + statistics));
  // q, k, v, o and do in, dq, dk and dv out.
  add("attention backward", StepKind::attention, z.L * (rows * (4 * q + 4 * kv) + statistics));
  // q and k in and out; backward dq, dk and for a norm q and k in, their projection's gradient out, where dv can lie.
  add("qk-norm and rotary", StepKind::pointwise, z.L * rows * (2 + (normed ? 3 : 2)) * (q + kv));
  // a and b in, inner value out; backward a, b and its gradient in, da, db and the inner value out.
  add("swiglu", StepKind::pointwise, z.L * rows * (3 + 6) * z.F);
  // A row of the table in and out; backward dx in, and the rows of the table's gradient in and out.
  add("embedding", StepKind::pointwise, rows * (2 + 3) * z.D);
  if (sizes.routing_heads > 0) {
    add("depth reads and norms", StepKind::reads, z.A * read_bytes(sizes, z));
  } else {
    add("residual additions and norms", StepKind::pointwise, z.A * stream_bytes(z));
  }
  // Logits in, their gradient out.
  add("loss", StepKind::loss, rows * 2 * z.V);
  // Every microbatch but the first adds to a sum in fp32.
  if (z.A > 1) add("sum over microbatches", StepKind::other, (z.A - 1) * 2 * 4 * parameters);
  // The norm reads the gradient.
  add("clip", StepKind::optimizer, gradient * parameters);
  // Gradient in; parameter and both moments, and with --rounding master the copy, in and out.
  add("update", StepKind::optimizer, (gradient + 2 * z.E + 2 * 2 * moment + (masters ? 2 * 4 : 0)) * parameters);
  return items;
}

double StepFloor::total_ms() const {
  double sum = gemm_ms;
  for (const FloorItem& item : items) sum += ms(item);
  return sum;
}

}  // namespace mhar::bench
