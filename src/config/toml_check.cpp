#include "config/toml_check.h"

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"

namespace mhar {
namespace {

// Every dot of a key opens a table inside a table; a flat file has dots in numbers alone, one each.
constexpr int64_t most_dots = 1000;

/// Walks over comments and quoted texts and looks at the rest. Where the text is broken it may lose its place, but only
/// after the character at which toml++ stops.
class Walk {
 public:
  Walk(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  void run() {
    if (starts("\xEF\xBB\xBF")) at_ += 3;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (c == '"' || c == '\'') {
        skip_quoted(c);
      } else {
        look_at(c);
        ++at_;
      }
    }
  }

 private:
  bool starts(std::string_view word) const { return text_.substr(at_).starts_with(word); }

  void look_at(char c) {
    if (c == '\n') {
      ++line_;
      begun_ = false;
      return;
    }
    if (c == '{' || (c == '[' && !begun_)) {
      fail("a section", "move its lines to the top level under their option names");
    }
    if (c == '[') fail("a list", "write one value");
    begun_ = begun_ || (c != ' ' && c != '\t');
    if (static_cast<unsigned char>(c) >= 0x80) fail("a character outside ASCII", "put the text into quotes");
    if (c == '.' && ++dots_ > most_dots) fail("keys of many parts", "write option names without sections");
  }

  void skip_quoted(char quote) {
    const std::string triple(3, quote);
    const bool many_lines = starts(triple);
    at_ += many_lines ? 3 : 1;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        if (!many_lines) return;
        ++line_;
      } else if (c == '\\' && quote == '"') {
        ++at_;
        line_ += at_ < text_.size() && text_[at_] == '\n';
      } else if (c == quote && (!many_lines || starts(triple))) {
        at_ += many_lines ? 3 : 1;
        // A text of many lines may end in quotes of its own, before the three that close it.
        for (int own = 0; many_lines && own < 2 && at_ < text_.size() && text_[at_] == quote; ++own) ++at_;
        return;
      }
    }
  }

  [[noreturn]] void fail(const std::string& got, const std::string& remedy) const {
    throw InputError(
        {"read configuration", fmt::format("{}:{}", origin_, line_), "name = value on every line", got, remedy});
  }

  std::string_view text_;
  const std::string& origin_;
  size_t at_ = 0;
  int64_t line_ = 1, dots_ = 0;
  bool begun_ = false;  // whether something stands before this on its line
};

}  // namespace

void check_toml_text(const std::string& text, const std::string& origin) { Walk(text, origin).run(); }

}  // namespace mhar
