#include "bench/shapes.h"

#include <limits>

#include "base/error.h"
#include "config/model_config.h"

namespace mhar::bench {
namespace {

// Microbatch of 2 windows of 4096 on a model of 32 blocks of layers; the sources of 8 blocks of sites and a null.
const ReadShape kDelta{"8b-delta", 8192, 4096, 8, 64, 8};

void check_extent(const char* option, int64_t value) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (value >= 1 && value <= most) return;
  throw InputError({std::string("option --") + option, "", "a whole number from 1 to " + std::to_string(most),
                    std::to_string(value), std::string("change --") + option});
}

}  // namespace

std::vector<std::string> read_scales() {
  std::vector<std::string> names;
  for (const Scale& scale : scales()) names.push_back(scale.name);
  names.push_back(kDelta.scale);
  return names;
}

ReadShape read_shape(const std::string& scale) {
  if (scale == kDelta.scale) return kDelta;
  const Scale& row = find_scale(scale);
  return {scale, row.microbatch * row.model.sequence, row.model.width, row.model.kv_heads, row.model.sites()};
}

void check(const ReadShape& shape) {
  check_extent("tokens", shape.tokens);
  check_extent("width", shape.width);
  check_extent("heads", shape.heads);
  check_extent("sites", shape.sites);
  if (shape.width % shape.heads != 0) {
    throw InputError({"option --heads", "", "a divisor of --width " + std::to_string(shape.width),
                      std::to_string(shape.heads), "change --heads or --width"});
  }
  if (shape.block > 0 && shape.sites % shape.block != 0) {
    throw InputError({"option --sites", "", "a multiple of the " + std::to_string(shape.block) + " sites of a block",
                      std::to_string(shape.sites), "change --sites"});
  }
}

}  // namespace mhar::bench
