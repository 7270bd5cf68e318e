#pragma once
#include "bench/delta_reads.h"

namespace mhar::bench {

/// Largest error over largest value of the reference, over all sites or sources.
struct ReadErrors {
  double mix = 0;              ///< o
  double source_gradient = 0;  ///< ds
  double key_gradient = 0;     ///< dw

  double worst() const;
};

/// Tokens for a check in about a second: at most 33, so that the last tile of every kernel is a partial one.
int64_t tokens_to_check(const ReadShape& shape);

/// Runs `setup` on so many tokens and compares it with the fp64 loops of src/reference over the same stored numbers.
ReadErrors check_full(const Setup& setup, int64_t tokens);
ReadErrors check_delta(const Setup& setup, const ReadShape& shape, int64_t tokens);

/// What is still a right result; reads worse than this are not timed.
double error_limit(at::ScalarType type);

}  // namespace mhar::bench
