#pragma once
#include <string>

namespace mhar {

/// The version of this program, "MAJOR.MINOR.PATCH"; stored in checkpoints and printed by `mhar info`.
std::string version();

}  // namespace mhar
