#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/error.h"

namespace mhar::checkpoint {

/// JSON of a file that others wrote. Throws InputError(operation, origin) for broken text, values nested deeper than
/// `depth` and a key that occurs twice in one object (readers would disagree on which one counts).
nlohmann::json parse_strict_json(std::string_view text, int depth, const std::string& operation,
                                 const std::string& origin);

/// `text` for a message: in quotes, at most 80 bytes, control characters replaced.
std::string excerpt(std::string_view text);

}  // namespace mhar::checkpoint
