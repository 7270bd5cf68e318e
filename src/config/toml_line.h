#pragma once
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace mhar {

/// `name = value` as one line of a TOML file has it.
struct TomlLine {
  enum class Kind { text, whole, real, truth };
  std::string name;
  Kind kind;
  std::string value;  ///< text: without quotes and escapes; numbers: decimal, without underscores and plus sign
};

/// What is wrong with a line; the caller knows file and number.
struct TomlFault {
  std::string wanted, got, remedy;
};

/// Reads one line (no line break in it) of the flat part of TOML 1.0: names, texts on one line in either kind of
/// quotes, whole and real numbers, true and false, comments. Nothing for a blank line. Throws TomlFault for what is not
/// TOML and for sections, lists, dates and texts of several lines, which no option takes.
std::optional<TomlLine> parse_toml_line(std::string_view line);

}  // namespace mhar
