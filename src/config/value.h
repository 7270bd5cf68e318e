#pragma once
#include <string>

#include "config/options.h"

namespace mhar {

/// Sets one option from text and returns an empty string; for a text that does not fit, leaves `config` as it was and
/// returns what was wanted. The caller words the error with its own place in it (command line or file and line).
std::string assign(RunConfig& config, const Option& option, const std::string& text);

}  // namespace mhar
