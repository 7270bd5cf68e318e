#pragma once
#include <cstdint>

namespace mhar {

/// Linear warm-up, then cosine to `floor` times the peak (docs/method.md, Eq. 30).
struct Schedule {
  int64_t steps, warm_up;
  double peak, floor;
  /// Rate of update u, counted from 1; from update `steps` on it stays at the floor. Needs 0 <= warm_up <= steps.
  double rate(int64_t u) const;
};

}  // namespace mhar
