#include "cli/usage.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace mhar::cli {
namespace {

template <typename Number>
std::string check_number(const std::string& text, Number least, const char* kind) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // Written so that a NaN is refused too.
  if (error == std::errc() && stop == end && value >= least && std::isfinite(static_cast<double>(value))) return {};
  return fmt::format("wanted {} of at least {}, got '{}'", kind, least, text);
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string unknown_argument(const CLI::App& command, const std::string& called, std::vector<std::string> rest) {
  const auto dashed = std::find_if(rest.begin(), rest.end(), [](const auto& word) { return word.starts_with("-"); });
  const std::string word = dashed == rest.end() ? rest.front() : *dashed;
  const std::string name = word.substr(0, word.find('='));
  const std::string near = closest(name, option_names(command));
  const std::string help = fmt::format("see {} --help", called);
  return describe({"command line", word,
                   fmt::format("{} of {}", dashed == rest.end() ? "an argument" : "an option", called),
                   "an unknown one", near.empty() ? help : fmt::format("did you mean {}? {}", near, help)});
}

}  // namespace

CLI::Validator whole_from(int64_t least, int64_t most) {
  const bool limited = most < std::numeric_limits<int64_t>::max();
  return {[least, most, limited](std::string& text) {
            std::string refusal = check_number(text, least, "a whole number");
            if (!refusal.empty() || !limited || std::stoll(text) <= most) return refusal;
            return fmt::format("wanted a whole number of at most {}, got '{}'", most, text);
          },
          limited ? fmt::format("{} to {}", least, most) : fmt::format(">= {}", least)};
}

CLI::Validator number_from(double least) {
  return {[least](std::string& text) { return check_number(text, least, "a number"); }, fmt::format(">= {}", least)};
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string all = fmt::format("{}", fmt::join(words, ", "));
  return {[words = std::move(words), all](std::string& text) {
            const bool there = std::find(words.begin(), words.end(), text) != words.end();
            return there ? std::string() : fmt::format("wanted one of {}, got '{}'", all, text);
          },
          all};
}

std::string describe_usage(const CLI::App& app, const CLI::ParseError& error) {
  std::string called = "mhar";
  const CLI::App* command = &app;
  for (auto parsed = app.get_subcommands(); !parsed.empty(); parsed = command->get_subcommands()) {
    command = parsed.front();
    called += " " + command->get_name();
  }
  const auto rest = app.remaining(true);
  const auto names = command_names(*command);
  if (!names.empty()) {
    const std::string word = rest.empty() ? "" : rest.front();
    if (word.starts_with("-")) return unknown_argument(*command, called, rest);
    const std::string near = closest(word, names);
    const std::string help = fmt::format("see {} --help", called);
    return describe({"command line", "", fmt::format("a command: {}", fmt::join(names, ", ")),
                     word.empty() ? "none" : fmt::format("'{}'", word),
                     near.empty() ? help : fmt::format("did you mean {}? {}", near, help)});
  }
  if (!rest.empty()) return unknown_argument(*command, called, rest);
  std::string what = error.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return fmt::format("{}: {}; see {} --help", what.starts_with("--") ? "option" : "command line", what, called);
}

}  // namespace mhar::cli
