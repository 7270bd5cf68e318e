#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "config/options.h"
#include "config/toml_line.h"
#include "config/utf8.h"
#include "config/value.h"

namespace mhar {
namespace {

constexpr const char* operation = "read configuration";
constexpr size_t longest_text = 1 << 20;

void apply(RunConfig& config, const Option& option, const TomlLine& line) {
  using Kind = TomlLine::Kind;
  constexpr const char* got[] = {"a text", "a whole number", "a number with a fraction", "true or false"};
  constexpr const char* wanted[] = {"a text in quotes", "a whole number", "a number", "true or false"};
  const auto kind = static_cast<size_t>(line.kind), type = option.field.index();
  const bool whole_as_real = line.kind == Kind::whole && type == static_cast<size_t>(Kind::real);
  const char* remedy = "write the value as wanted";
  if (kind != type && !whole_as_real) throw TomlFault{wanted[type], got[kind], remedy};
  const std::string missing = assign(config, option, line.value);
  if (!missing.empty()) throw TomlFault{missing, "'" + line.value + "'", remedy};
}

const Option& find_option(const std::string& name) {
  std::vector<std::string> names;
  for (const Option& option : options()) {
    if (option.name == name) return option;
    names.push_back(option.name);
  }
  const std::string near = closest(name, names);
  throw TomlFault{"a known option", "an unknown one",
                  near.empty() ? "`mhar train --help` lists the options" : fmt::format("did you mean {}", near)};
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
  std::string_view rest = text;
  if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);
  RunConfig result = config;
  std::map<std::string, int64_t> seen;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    std::string place = fmt::format("{}:{}", origin, number);
    try {
      const auto setting = parse_toml_line(line);
      if (!setting) continue;
      place += fmt::format(": {}", setting->name);
      const auto [first, fresh] = seen.emplace(setting->name, number);
      if (!fresh) throw TomlFault{"every name once", fmt::format("it again after line {}", first->second), "drop one"};
      apply(result, find_option(setting->name), *setting);
    } catch (const TomlFault& fault) {
      throw InputError({operation, place, fault.wanted, fault.got, fault.remedy});
    }
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
    // Without a mark of a real number TOML readers take it for an integer, which may not hold it.
    if (option.field.index() == 2 && value.find_first_of(".en") == std::string::npos) value += ".0";
    out += fmt::format("{} = {}\n", option.name, value);
  }
  return out;
}

}  // namespace mhar
