#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "config/options.h"
#include "config/toml_check.h"
#include "config/value.h"

namespace mhar {
namespace {

constexpr const char* operation = "read configuration";
constexpr size_t longest_text = 1 << 20;

struct Line {
  std::string origin;
  int64_t number;
  std::string name;

  [[noreturn]] void fail(const std::string& wanted, const std::string& got, const std::string& remedy) const {
    throw InputError({operation, fmt::format("{}:{}: {}", origin, number, name), wanted, got, remedy});
  }
};

std::string kind(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "a whole number";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "true or false";
    default:
      return "a date or time";
  }
}

std::string value_text(const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  return node.value_or(false) ? "true" : "false";
}

void apply(RunConfig& config, const Option& option, const toml::node& node, const Line& line) {
  const size_t type = option.field.index();
  const bool real_from_whole = type == 2 && node.is_integer();
  const bool fits = (type == 0 && node.is_string()) || (type == 1 && node.is_integer()) ||
                    (type == 2 && node.is_floating_point()) || (type == 3 && node.is_boolean()) || real_from_whole;
  if (!fits) {
    constexpr const char* wanted[] = {"a text in quotes", "a whole number", "a number", "true or false"};
    line.fail(wanted[type], kind(node), "write the value as wanted");
  }
  const std::string text = value_text(node);
  if (const std::string wanted = assign(config, option, text); !wanted.empty()) {
    line.fail(wanted, "'" + text + "'", "write the value as wanted");
  }
}

bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u; };
    const unsigned lead = byte(i);
    const bool two = lead >= 0xC2 && lead < 0xE0, three = (lead & 0xF0) == 0xE0, four = lead >= 0xF0 && lead < 0xF5;
    if (lead >= 0x80 && !two && !three && !four) return false;
    const size_t more = two ? 1 : three ? 2 : four ? 3 : 0;
    for (size_t k = 1; k <= more; ++k) {
      if ((byte(i + k) & 0xC0) != 0x80) return false;
    }
    const unsigned second = byte(i + 1);
    const bool overlong = (lead == 0xE0 && second < 0xA0) || (lead == 0xF0 && second < 0x90);
    const bool outside = (lead == 0xED && second >= 0xA0) || (lead == 0xF4 && second >= 0x90);
    if (overlong || outside) return false;
    i += more + 1;
  }
  return true;
}

std::string toml_string(const std::string& name, const std::string& text) {
  if (!is_utf8(text)) {
    throw InputError(
        {"write configuration", "option --" + name, "text in UTF-8", "other bytes", "use a path in UTF-8"});
  }
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += fmt::format("\\{}", c);
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

void read_toml(const std::string& path, RunConfig& config) { parse_toml(read_text(path, operation), path, config); }

void parse_toml(const std::string& text, const std::string& origin, RunConfig& config) {
  if (text.size() > longest_text) {
    throw InputError({operation, origin, "at most 1 MiB of name = value lines", fmt::format("{} bytes", text.size()),
                      "give the TOML file of a run"});
  }
  check_toml_text(text, origin);
  toml::table table;
  try {
    table = toml::parse(text, origin);
  } catch (const toml::parse_error& error) {
    throw InputError({operation, fmt::format("{}:{}", origin, error.source().begin.line), "TOML lines of name = value",
                      std::string(error.description()), "correct this line"});
  }
  std::vector<std::pair<Line, const toml::node*>> lines;
  for (const auto& [key, node] : table) {
    lines.push_back({Line{origin, key.source().begin.line, std::string(key.str())}, &node});
  }
  // In the file's order, so that the first fault is the one reported.
  std::stable_sort(lines.begin(), lines.end(),
                   [](const auto& a, const auto& b) { return a.first.number < b.first.number; });
  std::vector<std::string> names;
  for (const Option& option : options()) names.push_back(option.name);
  RunConfig result = config;
  for (const auto& [line, node] : lines) {
    if (node->is_table()) {
      line.fail("name = value, without sections", "a section",
                "move its lines to the top level under their option names");
    }
    const auto option = std::find(names.begin(), names.end(), line.name);
    if (option == names.end()) {
      const std::string near = closest(line.name, names);
      line.fail("a known option", "an unknown one",
                near.empty() ? "`mhar train --help` lists the options" : fmt::format("did you mean {}", near));
    }
    apply(result, options()[option - names.begin()], *node, line);
  }
  config = std::move(result);
}

std::string to_toml(const RunConfig& config) {
  std::string out, group;
  for (const Option& option : options()) {
    if (option.group != group) out += fmt::format("{}# {}\n", out.empty() ? "" : "\n", option.group);
    group = option.group;
    std::string value = option_text(config, option);
    if (option.field.index() == 0) value = toml_string(option.name, value);
    // Without a mark of a real number TOML would read an integer, which may not hold it.
    if (option.field.index() == 2 && value.find_first_of(".en") == std::string::npos) value += ".0";
    out += fmt::format("{} = {}\n", option.name, value);
  }
  return out;
}

}  // namespace mhar
