#include "config/run_config.h"

#include <limits>

#include "config/helpers.h"

namespace mhar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Resolve, FillsTheScaleIn) {
  const RunConfig c = resolve(with({{"scale", "1b"}}));
  EXPECT_EQ(c.width, 1280);
  EXPECT_EQ(c.head_dim, 80);
  EXPECT_EQ(c.sequence, 1024);
  EXPECT_EQ(c.microbatch, 2);
  EXPECT_EQ(c.global_batch, 32);
  EXPECT_EQ(c.accumulation(), 16);
  EXPECT_EQ(c.warm_up, 1000);  // of 20,000, as published
  EXPECT_EQ(c.model().design, "mhar");
  EXPECT_EQ(c.model().sites(), 73);
}

TEST(Resolve, IsDoneAfterOnce) {
  for (const Scale& scale : scales()) {
    RunConfig c = with({{"scale", scale.name}, {"accumulate", "3"}, {"width", "640"}, {"heads", "8"}});
    const RunConfig once = resolve(c);
    EXPECT_EQ(to_toml(resolve(once)), to_toml(once)) << scale.name;
  }
}

TEST(Resolve, HeadDimensionFollowsWidthAndHeads) {
  EXPECT_EQ(resolve(with({{"width", "256"}})).head_dim, 64);
  EXPECT_EQ(resolve(with({{"heads", "2"}})).head_dim, 64);
  EXPECT_EQ(resolve(with({{"width", "256"}, {"head-dim", "32"}})).head_dim, 32);
  EXPECT_EQ(resolve(with({{"layers", "2"}})).head_dim, 32);
  EXPECT_THAT(refusal({{"heads", "6"}}),
              HasSubstr("option --heads: wanted a divisor of --width 128, got 6; change --heads or --width, or give"));
  EXPECT_EQ(resolve(with({{"heads", "6"}, {"head-dim", "32"}})).head_dim, 32);
  EXPECT_THAT(refusal({{"heads", "-4"}}), HasSubstr("option --heads"));
  EXPECT_THAT(refusal({{"width", "-128"}}), HasSubstr("--width -128"));
  EXPECT_THAT(refusal({{"width", "100"}, {"routing-heads", "3"}, {"head-dim", "32"}}),
              AllOf(HasSubstr("--width 100"), HasSubstr("got 3")));
}

TEST(Resolve, BatchesFit) {
  EXPECT_EQ(resolve(with({{"microbatch", "2"}})).accumulation(), 4);
  EXPECT_EQ(resolve(with({{"microbatch", "2"}, {"accumulate", "3"}})).global_batch, 6);
  EXPECT_EQ(resolve(with({{"accumulate", "3"}})).global_batch, 24);
  EXPECT_EQ(resolve(with({{"microbatch", "2"}, {"accumulate", "3"}, {"global-batch", "6"}})).global_batch, 6);
  // The scale's microbatch gives way to a global batch that it does not divide.
  EXPECT_EQ(resolve(with({{"global-batch", "4"}})).microbatch, 4);
  EXPECT_EQ(resolve(with({{"global-batch", "12"}})).microbatch, 4);
  EXPECT_THAT(refusal({{"microbatch", "3"}}),
              HasSubstr("option --microbatch: wanted a divisor of --global-batch 8, got 3"));
  EXPECT_THAT(refusal({{"microbatch", "2"}, {"accumulate", "3"}, {"global-batch", "8"}}),
              AllOf(HasSubstr("option --accumulate: 3: wanted --microbatch 2 times it to be --global-batch 8, got 6"),
                    HasSubstr("give --accumulate or --global-batch, not both")));
}

TEST(Resolve, WarmUpFollowsTheSteps) {
  EXPECT_EQ(resolve(with({{"steps", "400"}})).warm_up, 20);
  EXPECT_EQ(resolve(with({{"steps", "1"}})).warm_up, 1);
  EXPECT_EQ(resolve(with({{"steps", "400"}, {"warm-up", "0"}})).warm_up, 0);
  EXPECT_EQ(resolve(with({{"steps", "400"}, {"warm-up", "400"}})).warm_up, 400);
  EXPECT_THAT(refusal({{"steps", "400"}, {"warm-up", "401"}}),
              AllOf(HasSubstr("option --warm-up: wanted 0 to --steps 400"), HasSubstr("got 401"),
                    HasSubstr("change --warm-up or --steps")));
  EXPECT_THAT(refusal({{"warm-up", "-2"}}), HasSubstr("option --warm-up"));
}

TEST(Resolve, RefusesWholeNumbersOutOfRange) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {"steps", {"0", "-1", "9000000000000000000"}},
      {"microbatch", {"-1", "3000000000"}},
      {"global-batch", {"-8", "3000000000"}},
      {"accumulate", {"-1", "3000000000"}},
      {"validation-windows", {"-1"}},
      {"seed", {"-1"}},
      {"threads", {"-1", "100000"}},
      {"validate-every", {"0", "-5"}},
      {"save-every", {"0"}},
      {"keep-last", {"0"}},
      {"keep-every", {"-1"}},
      {"log-every", {"0"}},
      {"stop-after", {"-1"}},
      {"vocabulary", {"-1"}},
      {"layers", {"-1"}},
      {"sequence", {"-1"}},
  };
  for (const auto& [name, values] : cases) {
    for (const char* value : values) {
      EXPECT_THAT(refusal({{name, value}}),
                  AllOf(HasSubstr(std::string("option --") + name + ": wanted a whole number"),
                        HasSubstr(std::string("got ") + value)));
    }
  }
  EXPECT_THAT(refusal({{"microbatch", "2000000000"}, {"accumulate", "2000000000"}}),
              HasSubstr("option --global-batch"));
  EXPECT_THAT(refusal({{"steps", "2000000000"}, {"global-batch", "2000000000"}, {"sequence", "2000000000"}}),
              HasSubstr("wanted fewer than 2^63 tokens in a run"));
}

TEST(Resolve, RefusesRealsOutOfRange) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::pair<const char*, std::vector<double>> cases[] = {
      {"rate", {0.0, -1e-3, nan, inf}}, {"rate-floor", {-0.1, 1.1, nan}}, {"beta1", {-0.1, 1.0, nan}},
      {"beta2", {-0.1, 1.0, inf}},      {"adam-eps", {0.0, -1e-8, nan}},  {"weight-decay", {-0.1, nan, inf}},
      {"clip", {0.0, -1.0, nan, inf}},  {"z-loss", {-1e-4, nan, inf}},    {"norm-eps", {0.0, nan}},
      {"rope-theta", {0.0, -1.0, inf}},
  };
  for (const auto& [name, values] : cases) {
    for (double value : values) {
      RunConfig config;
      config.*std::get<double RunConfig::*>(option(name).field) = value;
      EXPECT_THAT(message_of([&] { resolve(config); }), HasSubstr(std::string("option --") + name + ": wanted "))
          << value;
    }
  }
  // What fp32 rounds to 0 or infinity would be another setting than the one given.
  for (const char* name : {"rate", "adam-eps", "z-loss", "clip", "norm-eps", "rope-theta"}) {
    for (const char* value : {"1e-300", "1e300"}) {
      EXPECT_THAT(refusal({{name, value}}), HasSubstr(std::string("option --") + name + ": wanted a number that fp32"));
    }
  }
  EXPECT_EQ(refusal({{"rate-floor", "0"}, {"beta1", "0"}, {"beta2", "0"}, {"weight-decay", "0"}}), "");
}

TEST(Resolve, RefusesWordsThatDoNotGoTogether) {
  EXPECT_THAT(refusal({{"rounding", "master"}, {"precision", "fp32"}}),
              AllOf(HasSubstr("option --rounding: wanted stochastic or nearest with --precision fp32, got master"),
                    HasSubstr("or use --precision bf16")));
  EXPECT_EQ(refusal({{"rounding", "master"}, {"precision", "bf16"}}), "");
  RunConfig config;
  config.precision = "fp64";
  EXPECT_THAT(message_of([&] { resolve(config); }),
              HasSubstr("option --precision: wanted one of bf16, fp32, got 'fp64'"));
  EXPECT_THAT(refusal({{"design", ""}}), HasSubstr("option --design: wanted a word, got nothing"));
  config.precision = "bf16";
  config.scale = "7b";
  EXPECT_THAT(message_of([&] { resolve(config); }), HasSubstr("option --scale"));
  EXPECT_THAT(message_of([&] { config.model(); }), HasSubstr("option --scale"));
}

}  // namespace
}  // namespace mhar
