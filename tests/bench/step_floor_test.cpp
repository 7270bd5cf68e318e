// Bytes and operations of a step against numbers made by hand: P = 8 tokens of D = 8, two query heads and one key/value
// head of 4 channels, F = 12, one layer, V = 10.
#include "bench/step_floor.h"

#include <gtest/gtest.h>

#include <map>

#include "bench/step_gemms.h"

namespace mhar::bench {
namespace {

RunConfig small(const std::string& precision, int64_t accumulate = 1) {
  RunConfig c;
  c.scale = "tiny";
  c.vocabulary = 10, c.width = 8, c.layers = 1, c.heads = 2, c.kv_heads = 1, c.head_dim = 4, c.ffn = 12;
  c.sequence = 4, c.microbatch = 2, c.accumulate = accumulate;
  c.precision = precision;
  return resolve(c);
}

std::map<std::string, double> bytes_of(const StepSizes& sizes) {
  std::map<std::string, double> bytes;
  for (const FloorItem& item : floor_items(sizes)) bytes[item.name] = item.bytes;
  return bytes;
}

TEST(StepFloor, BytesOfAResidualStream) {
  const std::map<std::string, double> wanted = {
      {"attention forward", 32 * (8 + 4 + 4 + 8) + 64},  // q, k, v, o of 8 tokens in fp32; two sums a token
      {"attention backward", 32 * (4 * 8 + 4 * 4) + 64},
      {"qk-norm and rotary", 32 * 5 * (8 + 4)},
      {"swiglu", 32 * 9 * 12},
      {"embedding", 32 * 5 * 8},
      {"residual additions and norms", 256 * (6 + 2 * 8 - 1)},
      {"loss", 32 * 2 * 10},
      {"clip", 4 * 1000},
      {"update", 28 * 1000},
  };
  EXPECT_EQ(bytes_of({small("fp32"), 1000, 0, at::kCPU}), wanted);
}

TEST(StepFloor, OptimizerInBf16) {
  RunConfig config = small("bf16");
  auto bytes = bytes_of({config, 1000, 0, at::kCPU});
  EXPECT_EQ(bytes["clip"], 2 * 1000);
  EXPECT_EQ(bytes["update"], 14 * 1000);
  EXPECT_EQ(bytes["loss"], 16 * 2 * 10);
  config.rounding = "master";  // gradient, parameter, two moments and a copy in fp32
  EXPECT_EQ(bytes_of({config, 1000, 0, at::kCPU})["update"], (2 + 4 + 16 + 8) * 1000);
}

TEST(StepFloor, SeveralMicrobatches) {
  auto one = bytes_of({small("bf16"), 1000, 0, at::kCPU}), three = bytes_of({small("bf16", 3), 1000, 0, at::kCPU});
  EXPECT_EQ(one.count("sum over microbatches"), 0u);
  EXPECT_EQ(three["sum over microbatches"], 2 * 8 * 1000);
  EXPECT_EQ(three["clip"], 4 * 1000);
  EXPECT_EQ(three["update"], 16 * 1000);
  for (const char* name : {"attention forward", "swiglu", "embedding", "residual additions and norms", "loss"}) {
    EXPECT_EQ(three[name], 3 * one[name]) << name;
  }
}

TEST(StepFloor, DepthReadsTakeTheStreamsPlace) {
  auto bytes = bytes_of({small("fp32"), 1000, 2, at::kCPU});
  EXPECT_EQ(bytes.count("residual additions and norms"), 0u);
  // At least: three sources read and written, three mixes, three normed inputs, and the gradients of all of them.
  EXPECT_GT(bytes["depth reads and norms"], 256 * 3 * 5);
}

TEST(StepFloor, OperationsAndTheirSum) {
  const StepFlops flops = step_flops(small("fp32", 3));
  // Weights: qkv 16 x 8, out 8 x 8, gate and up 24 x 8, down 8 x 12, head 10 x 8.
  EXPECT_EQ(flops.gemm, 3 * 6 * 8 * (128 + 64 + 192 + 96 + 80));
  // Three passes' worth of two products, 10 pairs of a window of 4, two windows, 8 channels.
  EXPECT_EQ(flops.attention, 3 * 3 * 2 * 2 * 10 * 2 * 8);
  EXPECT_EQ(flops.total(), flops.gemm + flops.attention);
}

TEST(StepFloor, LimitIsProductsAndBytes) {
  const StepFloor floor{{{"a", StepKind::loss, 2e9}, {"b", StepKind::optimizer, 1e9}}, 5, 1e12};
  EXPECT_DOUBLE_EQ(floor.ms(floor.items[0]), 2);
  EXPECT_DOUBLE_EQ(floor.total_ms(), 8);
}

TEST(StepGemms, EveryProductOfAStepIsTimed) {
  const GemmRates rates = measure_gemms(small("fp32", 2), at::kCPU);
  ASSERT_EQ(rates.products.size(), 5u);
  double flops = 0;
  for (const auto& one : rates.products) {
    EXPECT_GT(std::min({one.forward_ms, one.input_ms, one.weight_ms}), 0) << one.name;
    flops += one.flops;
  }
  EXPECT_EQ(flops, step_flops(small("fp32", 2)).gemm);
  EXPECT_GT(rates.peak, 0);
  EXPECT_GT(rates.total_ms(), 0);
}

}  // namespace
}  // namespace mhar::bench
