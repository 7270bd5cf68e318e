#include "config/model_config.h"

#include <limits>

#include "config/helpers.h"

namespace mhar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Row {
  const char* name;
  int64_t vocabulary, width, layers, heads, kv_heads, ffn, head_dim, microbatch, sequence, global_batch;
};

// The method's table, section 4, column by column.
const Row table[] = {
    {"100m", 151936, 512, 12, 8, 4, 1536, 64, 8, 2048, 64}, {"350m", 151936, 1024, 24, 16, 8, 4096, 64, 4, 1024, 32},
    {"1b", 151936, 1280, 36, 16, 8, 5120, 80, 2, 1024, 32}, {"d768", 151936, 768, 12, 12, 4, 2304, 64, 8, 2048, 64},
    {"tiny", 257, 128, 4, 4, 2, 384, 32, 8, 256, 8},        {"8b", 151936, 4096, 32, 32, 8, 14336, 128, 2, 4096, 256},
};

TEST(Scales, AreTheTableOfTheMethod) {
  ASSERT_EQ(scales().size(), std::size(table));
  for (const Row& row : table) {
    const Scale& scale = find_scale(row.name);
    const ModelConfig& m = scale.model;
    EXPECT_EQ(m.vocabulary, row.vocabulary) << row.name;
    EXPECT_EQ(m.width, row.width) << row.name;
    EXPECT_EQ(m.layers, row.layers) << row.name;
    EXPECT_EQ(m.heads, row.heads) << row.name;
    EXPECT_EQ(m.kv_heads, row.kv_heads) << row.name;
    EXPECT_EQ(m.ffn, row.ffn) << row.name;
    EXPECT_EQ(m.head_dim, row.head_dim) << row.name;
    EXPECT_EQ(m.sequence, row.sequence) << row.name;
    EXPECT_EQ(scale.microbatch, row.microbatch) << row.name;
    EXPECT_EQ(scale.global_batch, row.global_batch) << row.name;
    EXPECT_TRUE(m.tied && m.qk_norm);
    EXPECT_EQ(m.norm_eps, 1e-6);
    EXPECT_EQ(m.rope_theta, 1e4);
    EXPECT_NO_THROW(validate(m)) << row.name;
  }
}

TEST(Scales, AnUnknownOneListsTheNames) {
  EXPECT_THAT(message_of([] { find_scale("7b"); }),
              HasSubstr("option --scale: wanted one of 100m, 350m, 1b, d768, tiny, 8b, got '7b'"));
}

/// What validate says about `tiny` after a change.
template <typename Change>
std::string fault(Change&& change) {
  ModelConfig config = find_scale("tiny").model;
  change(config);
  return message_of([&] { validate(config); });
}

TEST(Validate, EveryExtentMustBeAPositiveNumber) {
  const std::pair<const char*, int64_t ModelConfig::*> extents[] = {
      {"vocabulary", &ModelConfig::vocabulary},
      {"width", &ModelConfig::width},
      {"layers", &ModelConfig::layers},
      {"heads", &ModelConfig::heads},
      {"kv-heads", &ModelConfig::kv_heads},
      {"head-dim", &ModelConfig::head_dim},
      {"ffn", &ModelConfig::ffn},
      {"sequence", &ModelConfig::sequence},
  };
  for (const auto& [name, field] : extents) {
    for (int64_t bad : {int64_t{0}, int64_t{-4}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
      EXPECT_THAT(fault([&, f = field](ModelConfig& c) { c.*f = bad; }),
                  HasSubstr(std::string("option --") + name + ": wanted a whole number from 1 to 2147483647, got " +
                            std::to_string(bad)));
    }
  }
}

TEST(Validate, RoutingHeadsDivideTheWidth) {
  const auto d100_h3 = [](ModelConfig& c) {
    c.width = 100;
    c.routing_heads = 3;
  };
  EXPECT_THAT(fault(d100_h3), HasSubstr("option --routing-heads: wanted a divisor of --width 100, got 3"));
  EXPECT_THAT(fault([](ModelConfig& c) { c.routing_heads = -1; }),
              HasSubstr("option --routing-heads: wanted 1 or more"));
  EXPECT_EQ(fault([](ModelConfig& c) { c.routing_heads = 128; }), "");
}

TEST(Validate, KeyValueHeadsDivideTheHeads) {
  EXPECT_THAT(fault([](ModelConfig& c) { c.kv_heads = 3; }),
              HasSubstr("option --kv-heads: wanted a divisor of --heads 4, got 3; change --kv-heads or --heads"));
}

TEST(Validate, HeadDimensionIsEven) {
  EXPECT_THAT(fault([](ModelConfig& c) { c.head_dim = 33; }), HasSubstr("option --head-dim: wanted an even number"));
  EXPECT_EQ(fault([](ModelConfig& c) { c.head_dim = 160; }), "") << "heads * head-dim may differ from the width";
}

TEST(Validate, RealsAreFiniteAndPositive) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (double bad : {0.0, -1e-6, nan, inf}) {
    EXPECT_THAT(fault([&](ModelConfig& c) { c.norm_eps = bad; }),
                HasSubstr("option --norm-eps: wanted a finite number"));
    EXPECT_THAT(fault([&](ModelConfig& c) { c.rope_theta = bad; }), HasSubstr("option --rope-theta: wanted a finite"));
  }
}

TEST(Validate, ProductsThatOverflow) {
  const auto huge = [](ModelConfig& c) {
    c.vocabulary = c.width = c.layers = c.heads = c.kv_heads = c.ffn = c.sequence = 2147483647;
    c.head_dim = 2147483646;
  };
  EXPECT_THAT(fault(huge),
              AllOf(HasSubstr("wanted at most 1099511627776 parameters"), HasSubstr("--layers 2147483647")));
  EXPECT_THAT(fault([](ModelConfig& c) { c.layers = 100000000; }), HasSubstr("parameters"));
  EXPECT_EQ(fault([](ModelConfig& c) { c.vocabulary = 1 << 20; }), "");
}

TEST(Validate, RotaryScaling) {
  const auto rope = [](RopeScaling scaling) { return fault([&](ModelConfig& c) { c.rope = scaling; }); };
  EXPECT_EQ(rope({.kind = "linear", .factor = 2.0}), "");
  EXPECT_EQ(rope({.kind = "llama3", .factor = 8.0}), "");
  EXPECT_THAT(rope({.kind = "yarn"}),
              HasSubstr("rotary scaling: rope_type: wanted default, linear or llama3, got yarn"));
  EXPECT_THAT(rope({.kind = "linear", .factor = 0.5}), HasSubstr("factor: wanted a number from 1, got 0.5"));
  EXPECT_THAT(rope({.kind = "llama3", .factor = std::numeric_limits<double>::quiet_NaN()}), HasSubstr("got nan"));
  EXPECT_THAT(rope({.kind = "llama3", .low_frequency_factor = 4.0}), HasSubstr("wanted 0 < low < high, got 4, 4"));
  EXPECT_THAT(rope({.kind = "llama3", .original_length = 0}), HasSubstr("wanted 1 or more positions, got 0"));
}

}  // namespace
}  // namespace mhar
