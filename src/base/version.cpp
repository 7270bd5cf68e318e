#include "base/version.h"

namespace mhar {

std::string version() { return MHAR_VERSION; }

}  // namespace mhar
