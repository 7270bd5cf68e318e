#include "config/options.h"

#include <set>

#include "config/helpers.h"

namespace mhar {
namespace {

using ::testing::HasSubstr;

std::string fault(const std::string& name, const std::string& text) {
  RunConfig config;
  const std::string before = to_toml(config);
  const std::string message = message_of([&] { set_option(config, option(name), text); });
  EXPECT_EQ(to_toml(config), before) << "a refused value must change nothing";
  return message;
}

TEST(Options, NamesAndFieldsAreUnique) {
  std::set<std::string> names;
  for (const Option& o : options()) {
    EXPECT_TRUE(names.insert(o.name).second) << o.name;
    EXPECT_FALSE(o.help.empty() || o.group.empty()) << o.name;
  }
  for (size_t i = 0; i < options().size(); ++i) {
    for (size_t k = 0; k < i; ++k) EXPECT_NE(options()[i].field, options()[k].field) << options()[i].name;
  }
}

TEST(Options, WhatChangesTheNumbersIsRefusedOnResume) {
  const std::set<std::string> free = {"data",       "accumulate", "validation-windows", "run",        "device",
                                      "threads",    "save-every", "validate-every",     "keep-last",  "keep-every",
                                      "log-every",  "resume",     "fresh-data",         "stop-after", "read",
                                      "read-chunk", "cuda-graph"};
  for (const Option& o : options()) EXPECT_EQ(o.mathematics, !free.contains(o.name)) << o.name;
}

TEST(Options, SetFromText) {
  const RunConfig c = with({{"scale", "8b"}, {"layers", "7"}, {"rate", "3e-4"}, {"clip", "2"}, {"tied", "false"}});
  EXPECT_EQ(c.scale, "8b");
  EXPECT_EQ(c.layers, 7);
  EXPECT_EQ(c.rate, 3e-4);
  EXPECT_EQ(c.clip, 2.0);
  EXPECT_FALSE(c.tied);
  EXPECT_EQ(option_text(c, option("rate")), "0.0003");
  EXPECT_EQ(option_text(c, option("tied")), "false");
  EXPECT_EQ(option_text(c, option("layers")), "7");
}

TEST(Options, RefuseTextThatDoesNotFit) {
  for (const char* text : {"", "x", "1.5", "1e3", " 4", "4 ", "0x10", "+4"}) {
    EXPECT_THAT(fault("heads", text),
                HasSubstr(std::string("option --heads: wanted a whole number, got '") + text + "'"));
  }
  EXPECT_THAT(fault("heads", "99999999999999999999"), HasSubstr("wanted a whole number within range"));
  for (const char* text : {"", "x", "1,5", "1e", "1.0f"}) {
    EXPECT_THAT(fault("rate", text), HasSubstr(std::string("option --rate: wanted a number, got '") + text + "'"));
  }
  EXPECT_THAT(fault("rate", "1e999"), HasSubstr("wanted a number within range"));
  for (const char* text : {"nan", "inf", "-inf"}) EXPECT_THAT(fault("rate", text), HasSubstr("wanted a finite number"));
  for (const char* text : {"", "yes", "1", "True"}) EXPECT_THAT(fault("tied", text), HasSubstr("wanted true or false"));
  EXPECT_THAT(fault("rounding", "down"), HasSubstr("wanted one of stochastic, nearest, master, got 'down'"));
  EXPECT_THAT(fault("scale", "Tiny"), HasSubstr("wanted one of 100m, 350m, 1b, d768, tiny, 8b, got 'Tiny'"));
}

TEST(Differences, NameOptionAndBothValues) {
  const RunConfig stored = resolve(with({{"steps", "400"}, {"threads", "2"}}));
  EXPECT_TRUE(mathematics_differences(stored, stored).empty());
  const RunConfig asked = resolve(with({{"steps", "500"}, {"threads", "1"}, {"save-every", "7"}, {"rate", "2e-3"}}));
  const auto differences = mathematics_differences(stored, asked);
  ASSERT_EQ(differences.size(), 3u);
  EXPECT_EQ(differences[0].option, "steps");
  EXPECT_EQ(differences[0].stored, "400");
  EXPECT_EQ(differences[0].asked, "500");
  EXPECT_EQ(differences[1].option, "warm-up");  // followed the steps
  EXPECT_EQ(differences[2].option, "rate");
  EXPECT_EQ(differences[2].asked, "0.002");
}

}  // namespace
}  // namespace mhar
