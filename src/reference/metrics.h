#pragma once
// What a summed loss is reported as: Eq. 35 and 36 of docs/method.md.
#include <cmath>
#include <numbers>

namespace mhar::reference {

/// Per token when `count` is the number of counted targets, per word when it is the number of words. Eq. 35.
inline double perplexity(double nats, double count) { return std::exp(nats / count); }

/// `bytes`: of the text that the counted targets stand for. Eq. 36.
inline double bits_per_byte(double nats, double bytes) { return nats / (std::numbers::ln2 * bytes); }

}  // namespace mhar::reference
