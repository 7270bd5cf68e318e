#include "config/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mhar {

double Schedule::rate(int64_t u) const {
  if (u <= warm_up) return peak * static_cast<double>(u) / static_cast<double>(warm_up);
  if (u >= steps) return peak * floor;
  const double done = static_cast<double>(u - warm_up) / static_cast<double>(steps - warm_up);
  return peak * (floor + (1.0 - floor) * (1.0 + std::cos(std::numbers::pi * done)) / 2.0);
}

}  // namespace mhar
