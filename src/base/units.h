#pragma once
#include <cmath>
#include <numbers>

namespace mhar {

/// exp of a mean loss in nats a token: perplexity per token.
inline double perplexity(double nats_per_token) { return std::exp(nats_per_token); }

/// A summed loss in nats over text of `bytes` bytes, in bits a byte.
inline double bits_per_byte(double nats, double bytes) { return nats / (bytes * std::numbers::ln2); }

}  // namespace mhar
