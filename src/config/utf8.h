#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace mhar {

/// Whether all of `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(std::string_view text);

/// Appends one code point; false for a surrogate or a number beyond Unicode.
bool append_utf8(std::string& text, uint32_t code);

}  // namespace mhar
