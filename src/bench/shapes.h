#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mhar::bench {

/// The reads of one microbatch: R sites over P tokens of width D with H routing heads.
struct ReadShape {
  std::string scale;  ///< the row it came from
  int64_t tokens, width, heads, sites;
  /// 0: site r reads sources 0 .. r. Otherwise gated reads over block sources: each block of this many sites shares a
  /// list of sources, one longer than that of the block before, and a null source.
  int64_t block = 0;
};

/// Rows of the table of scales, then "8b-delta".
std::vector<std::string> read_scales();
ReadShape read_shape(const std::string& scale);

/// Throws InputError naming the option to change.
void check(const ReadShape& shape);

}  // namespace mhar::bench
