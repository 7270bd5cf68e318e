#pragma once
#include <string>

namespace mhar {

/// Refuses, with file and line, what a flat file never holds: sections, lists, keys of many parts and, outside quotes
/// and comments, characters that are not ASCII. toml++ 3.3 must not see them: it asserts on some broken section names,
/// its table of blanks has undefined behaviour for U+00A1 to U+0499, and deep trees overflow the stack when taken down.
/// Text that is no TOML for another reason passes: toml++ words that error.
void check_toml_text(const std::string& text, const std::string& origin);

}  // namespace mhar
