#include "config/toml_line.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "config/utf8.h"

namespace mhar {
namespace {

constexpr const char* name_value = "name = value";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'; }

class Reader {
 public:
  explicit Reader(std::string_view line) : line_(line) {}

  std::optional<TomlLine> read() {
    blanks();
    if (ended()) return std::nullopt;
    TomlLine result{name(), TomlLine::Kind::text, ""};
    blanks();
    if (peek() == '.') throw TomlFault{name_value, "a name of several parts", "write the option's name alone"};
    if (peek() != '=') throw TomlFault{name_value, "no equals sign after the name", "write name = value"};
    ++at_;
    blanks();
    if (ended()) throw TomlFault{name_value, "no value", "write the value behind the equals sign"};
    value(result);
    blanks();
    if (!ended()) throw TomlFault{name_value, "more after the value", "write one value on a line, a text in quotes"};
    return result;
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < line_.size() ? line_[at_ + ahead] : '\0'; }
  bool ended() const { return at_ >= line_.size() || line_[at_] == '#'; }
  void blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }

  std::string name() {
    if (peek() == '"' || peek() == '\'') return quoted();
    const size_t begin = at_;
    while (is_name(peek())) ++at_;
    if (at_ > begin) return std::string(line_.substr(begin, at_ - begin));
    if (peek() == '[') throw TomlFault{name_value, "a section", "move its lines to the top level under option names"};
    throw TomlFault{name_value, "no name", "begin the line with an option's name, or with # for a comment"};
  }

  void value(TomlLine& result) {
    const char c = peek();
    if (c == '"' || c == '\'') {
      result.value = quoted();
      return;
    }
    if (c == '[' || c == '{') throw TomlFault{"one value", c == '[' ? "a list" : "a section", "write one value"};
    const size_t begin = at_;
    while (!ended() && peek() != ' ' && peek() != '\t') ++at_;
    const std::string_view word = line_.substr(begin, at_ - begin);
    if (word == "true" || word == "false") {
      result.kind = TomlLine::Kind::truth;
      result.value = word;
    } else if (!number(word, result)) {
      throw TomlFault{"a number, true, false or a text in quotes", "something else", "put a text into quotes"};
    }
  }

  std::string quoted() {
    const char quote = peek();
    if (peek(1) == quote && peek(2) == quote) {
      throw TomlFault{"a text on one line", "a text of several lines", "write it on one line, in one pair of quotes"};
    }
    std::string text;
    for (++at_; at_ < line_.size() && line_[at_] != quote; ++at_) {
      if (quote == '"' && line_[at_] == '\\') {
        escape(text);
      } else {
        text += line_[at_];
      }
    }
    if (at_ == line_.size()) throw TomlFault{"a text that ends on its line", "no closing quote", "close the quotes"};
    ++at_;
    return text;
  }

  /// at_ is on the backslash, afterwards on the last character of the escape.
  void escape(std::string& text) {
    constexpr std::string_view letters = "btnfr\"\\", meanings = "\b\t\n\f\r\"\\";
    const char letter = peek(1);
    if (const size_t which = letters.find(letter); letter != '\0' && which != std::string_view::npos) {
      text += meanings[which];
      ++at_;
      return;
    }
    const size_t length = letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (length > 0 && at_ + 2 + length <= line_.size()) {
      const char* begin = line_.data() + at_ + 2;
      const auto [end, error] = std::from_chars(begin, begin + length, code, 16);
      if (error == std::errc() && end == begin + length && append_utf8(text, code)) {
        at_ += 1 + length;
        return;
      }
    }
    throw TomlFault{"an escape that TOML knows", "another one after a backslash",
                    "use single quotes for a plain backslash"};
  }

  /// Skips digits with single underscores between them; false when there is none.
  static bool digits(std::string_view word, size_t& at, std::string& out) {
    const size_t begin = at;
    while (at < word.size() && (is_digit(word[at]) || (word[at] == '_' && at > begin && is_digit(word[at - 1]) &&
                                                       at + 1 < word.size() && is_digit(word[at + 1])))) {
      if (word[at] != '_') out += word[at];
      ++at;
    }
    return at > begin;
  }

  static bool number(std::string_view word, TomlLine& result) {
    size_t at = 0;
    std::string out;
    if (word[0] == '+' || word[0] == '-') out.assign(word[at++] == '-' ? "-" : "");
    const auto rest = word.substr(at);
    result.kind = TomlLine::Kind::real;
    if (rest == "inf" || rest == "nan") {
      result.value = out + std::string(rest);
      return true;
    }
    const size_t first = at;
    if (!digits(word, at, out) || (word[first] == '0' && at > first + 1)) return false;
    bool real = false;
    if (at < word.size() && word[at] == '.') {
      out += word[at++];
      if (!digits(word, at, out)) return false;
      real = true;
    }
    if (at < word.size() && (word[at] == 'e' || word[at] == 'E')) {
      out += word[at++];
      if (at < word.size() && (word[at] == '+' || word[at] == '-')) out += word[at++];
      if (!digits(word, at, out)) return false;
      real = true;
    }
    if (!real) result.kind = TomlLine::Kind::whole;
    result.value = out;
    return at == word.size();
  }

  std::string_view line_;
  size_t at_ = 0;
};

}  // namespace

std::optional<TomlLine> parse_toml_line(std::string_view line) {
  if (!is_utf8(line)) throw TomlFault{"text in UTF-8", "other bytes", "save the file as UTF-8"};
  for (char c : line) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F) {
      throw TomlFault{"text", fmt::format("control character {}", static_cast<int>(c)),
                      "use an escape such as \\n in double quotes"};
    }
  }
  return Reader(line).read();
}

}  // namespace mhar
