#pragma once
#include <string>
#include <vector>

#include "data/manifest.h"
#include "data/token_file.h"

namespace mhar::data {

/// The tokens of one split as one array, over its shards in the manifest's order.
class TokenStream {
 public:
  /// Maps every shard, compares its length and hash with the manifest, and refuses ids of `vocabulary` or more (the
  /// model's), naming the shard, the id and the option. `split` is "train" or "validation".
  TokenStream(const fs::path& prefix, const Manifest& manifest, const std::string& split, int64_t vocabulary);

  int64_t size() const { return size_; }
  void copy(int64_t begin, std::span<int64_t> out) const;

 private:
  std::vector<TokenFile> files_;
  std::vector<int64_t> starts_;
  int64_t size_ = 0;
};

/// How many windows of T targets a stream of `tokens` holds: window w is tokens [w T, w T + T] inclusive.
int64_t window_count(int64_t tokens, int64_t sequence);

}  // namespace mhar::data
