#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "config/helpers.h"

namespace mhar {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

RunConfig parsed(const std::string& text) {
  RunConfig config;
  parse_toml(text, "run.toml", config);
  return config;
}

std::string fault(const std::string& text) {
  RunConfig config;
  const std::string before = to_toml(config);
  const std::string message = message_of([&] { parse_toml(text, "run.toml", config); });
  EXPECT_EQ(to_toml(config), before) << "a refused file must change nothing";
  return message;
}

TEST(Toml, ReadsEveryKindOfValue) {
  const RunConfig c =
      parsed("scale = \"100m\"\nsteps = 1_000\nrate = 3e-4\nclip = 2\ntied = false # no\ndata = 'C:\\x'\n");
  EXPECT_EQ(c.scale, "100m");
  EXPECT_EQ(c.steps, 1000);
  EXPECT_EQ(c.rate, 3e-4);
  EXPECT_EQ(c.clip, 2.0);  // a whole number where a real one is wanted
  EXPECT_FALSE(c.tied);
  EXPECT_EQ(c.data, "C:\\x");
  EXPECT_EQ(c.design, "mhar");  // what the file leaves out stays
}

TEST(Toml, NamesTextsAndNumbersAsTomlHasThem) {
  EXPECT_EQ(parsed("\t\"steps\"=+1_0#no\n'rate'\t=\t-1_0.2_5e+0_1").steps, 10);
  EXPECT_EQ(parsed("rate = -1_0.2_5e+0_1").rate, -102.5);
  EXPECT_EQ(parsed("rate = 5E-1").rate, 0.5);
  EXPECT_EQ(parsed("steps = -0").steps, 0);
  EXPECT_EQ(parsed("data = \"a#\\t\\\"\\\\\\n\\u00fc\\U0001F600\"").data, "a#\t\"\\\n\xC3\xBC\xF0\x9F\x98\x80");
  EXPECT_EQ(parsed("data = '' # nothing").data, "");
  EXPECT_EQ(parsed("data = '\\n\"'").data, "\\n\"");
}

TEST(Toml, CarriageReturnsMarksAndUmlauts) {
  const RunConfig c = parsed("\xEF\xBB\xBFscale = \"tiny\"\r\nsteps = 7\r\ndata = \"Ordner \xC3\xBC/x\"\r\n");
  EXPECT_EQ(c.steps, 7);
  EXPECT_EQ(c.data, "Ordner \xC3\xBC/x");
}

TEST(Toml, EmptyTextChangesNothing) {
  EXPECT_EQ(to_toml(parsed("")), to_toml(RunConfig()));
  EXPECT_EQ(to_toml(parsed("# nothing\n\n")), to_toml(RunConfig()));
}

TEST(Toml, RoundTripIsExact) {
  RunConfig c;
  c.data = "a \"quoted\" \\ path\n\ttab \x01 \x7F \xC3\xBC \xE2\x82\xAC \xF0\x9F\x98\x80";
  c.run = "'";
  c.seed = std::numeric_limits<int64_t>::max();
  c.warm_up = -1;
  c.qk_norm = false;
  c.fresh_data = true;
  EXPECT_EQ(parsed(to_toml(c)).data, c.data);
  std::mt19937_64 random(1);
  std::vector<double> reals = {0.1,
                               1e-8,
                               1.0,
                               -0.0,
                               1e22,
                               1e23,
                               123456789.0,
                               5e-324,
                               9007199254740993.0,
                               1.0 / 3.0,
                               9223372036854775808.0,
                               std::numeric_limits<double>::max()};
  for (int i = 0; i < 2000; ++i) {
    const double real = std::bit_cast<double>(random());
    if (std::isfinite(real)) reals.push_back(real);
  }
  for (double real : reals) {
    c.rate = real;
    const RunConfig again = parsed(to_toml(c));
    EXPECT_EQ(std::bit_cast<uint64_t>(again.rate), std::bit_cast<uint64_t>(real)) << real;
    EXPECT_EQ(to_toml(again), to_toml(c));
  }
}

TEST(Toml, EveryOptionIsWritten) {
  const std::string text = to_toml(RunConfig());
  for (const Option& o : options()) EXPECT_THAT(text, HasSubstr("\n" + o.name + " = "));
}

TEST(TomlFaults, TextThatIsNotUtf8) {
  for (const char* bad :
       {"\xFF", "\xC3", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE0\x80\x80", "\xF0\x80\x80\x80"}) {
    RunConfig c;
    c.run = std::string("runs/") + bad;
    EXPECT_THAT(message_of([&] { to_toml(c); }), HasSubstr("option --run: wanted text in UTF-8"));
    EXPECT_THAT(fault("run = \"" + c.run + "\"\n"), HasSubstr("run.toml:1"));
  }
}

TEST(TomlFaults, UnknownKeysNameTheirLineAndTheClosestOption) {
  EXPECT_THAT(fault("scale = \"tiny\"\n\nwarmup = 5\n"),
              HasSubstr("read configuration: run.toml:3: warmup: wanted a known option, got an unknown one; "
                        "did you mean warm-up"));
  EXPECT_THAT(fault("keep_last = 5\n"), HasSubstr("did you mean keep-last"));
  EXPECT_THAT(fault("completely-else = 5\n"), HasSubstr("run.toml:1: completely-else: wanted a known option"));
}

TEST(TomlFaults, TheFirstFaultIsReported) { EXPECT_THAT(fault("zzz = 1\naaa = 1\n"), HasSubstr("run.toml:1: zzz")); }

TEST(TomlFaults, Sections) {
  for (const char* text :
       {"steps = 5\n[model]\nwidth = 5\n", "steps = 5\n  [,\n", "steps = 5\n[[model]]\nwidth = 5\n"}) {
    EXPECT_THAT(fault(text), HasSubstr("run.toml:2: wanted name = value, got a section; move its lines to the top"));
  }
  EXPECT_THAT(fault("model = {width = 5}\n"), HasSubstr("run.toml:1: wanted one value, got a section"));
  EXPECT_THAT(fault("model.width = 5\n"), HasSubstr("run.toml:1: wanted name = value, got a name of several parts"));
}

TEST(TomlFaults, WrongKindsOfValue) {
  EXPECT_THAT(fault("\nsteps = \"5\"\n"), HasSubstr("run.toml:2: steps: wanted a whole number, got a text"));
  EXPECT_THAT(fault("steps = 5.0\n"), HasSubstr("steps: wanted a whole number, got a number with a fraction"));
  EXPECT_THAT(fault("rate = true\n"), HasSubstr("rate: wanted a number, got true or false"));
  EXPECT_THAT(fault("tied = 1\n"), HasSubstr("tied: wanted true or false, got a whole number"));
  EXPECT_THAT(fault("scale = [\"tiny\"]\n"), HasSubstr("run.toml:1: wanted one value, got a list"));
  EXPECT_THAT(fault("scale = 1979-05-27\n"), HasSubstr("run.toml:1: wanted a number, true, false or a text in quotes"));
  EXPECT_THAT(fault("rate = nan\n"), HasSubstr("run.toml:1: rate: wanted a finite number, got 'nan'"));
  EXPECT_THAT(fault("rate = inf\n"), HasSubstr("run.toml:1: rate: wanted a finite number, got 'inf'"));
  EXPECT_THAT(fault("rounding = \"up\"\n"),
              HasSubstr("run.toml:1: rounding: wanted one of stochastic, nearest, master, got 'up'"));
}

TEST(TomlFaults, BrokenText) {
  struct Case {
    const char *text, *message;
  };
  const Case cases[] = {
      {"a", "no equals sign after the name"},
      {"= 5", "wanted name = value, got no name"},
      {"! = 5", "wanted name = value, got no name"},
      {"rate =", "got no value"},
      {"rate = # 5", "got no value"},
      {"rate = 1 2", "got more after the value"},
      {"data = 'a' b", "got more after the value"},
      {"data = a/b", "wanted a number, true, false or a text in quotes, got something else"},
      {"data = \xC3\xBC", "wanted a number, true, false or a text in quotes"},
      {"data = 'a", "got no closing quote"},
      {"data = \"a\\\"", "got no closing quote"},
      {"data = \"\\", "wanted an escape that TOML knows"},
      {"data = \"\\x41\"", "wanted an escape that TOML knows"},
      {"data = \"\\uD800\"", "wanted an escape that TOML knows"},
      {"data = \"\\u00\"", "wanted an escape that TOML knows"},
      {"data = \"\\U00110000\"", "wanted an escape that TOML knows"},
      {"data = \"\\u-001\"", "wanted an escape that TOML knows"},
      {"data = \"\"\"a\"\"\"", "wanted a text on one line, got a text of several lines"},
      {"data = \'\'\'", "wanted a text on one line, got a text of several lines"},
      {"data = \"a\rb\"", "wanted text, got control character 13"},
      {"steps = 007", "wanted a number"},
      {"steps = 1__0", "wanted a number"},
      {"steps = _1", "wanted a number"},
      {"steps = 1_", "wanted a number"},
      {"steps = -", "wanted a number"},
      {"rate = 1.", "wanted a number"},
      {"rate = .5", "wanted a number"},
      {"rate = 1e", "wanted a number"},
      {"rate = 1e5x", "wanted a number"},
      {"rate = 1,5", "wanted a number"},
      {"steps = 99999999999999999999", "wanted a whole number within range"},
      {"rate = 1e999", "wanted a number within range"},
      {"steps = 5\nsteps = 6", "run.toml:3: steps: wanted every name once, got it again after line 2"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(fault("\n" + std::string(c.text) + "\n"),
                AllOf(HasSubstr("read configuration: run.toml:"), HasSubstr(c.message)))
        << c.text;
  }
  EXPECT_THAT(fault(std::string("PK\x03\x04\0\0", 6)), HasSubstr("run.toml:1"));
  EXPECT_THAT(fault(std::string(2 << 20, ' ')), HasSubstr("at most 1 MiB of name = value lines, got 2097152 bytes"));
}

TEST(TomlFaults, MissingFile) {
  RunConfig config;
  EXPECT_THAT(message_of([&] { read_toml("/absent/run.toml", config); }),
              AllOf(HasSubstr("read configuration"), HasSubstr("/absent/run.toml")));
  EXPECT_THAT(message_of([&] { read_toml("/", config); }), HasSubstr("read configuration"));
}

TEST(Configs, EveryPresetResolves) {
  const std::filesystem::path folder = std::filesystem::path(MHAR_TESTS_DIR) / ".." / "configs";
  int scales_with_file = 0;
  for (const auto& item : std::filesystem::directory_iterator(folder)) {
    if (item.path().extension() != ".toml") continue;
    RunConfig config;
    EXPECT_EQ(message_of([&] { read_toml(item.path().string(), config); }), "");
    EXPECT_EQ(message_of([&] { resolve(config); }), "") << item.path();
    const std::string stem = item.path().stem().string();
    scales_with_file += stem == config.scale;
  }
  EXPECT_EQ(scales_with_file, static_cast<int>(scales().size()));
}

}  // namespace
}  // namespace mhar
