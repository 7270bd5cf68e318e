#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/manifest.h"

namespace mhar::data {

struct PrepareOptions {
  std::vector<fs::path>
      sources;      ///< files and folders (walked in sorted order; binary files, with a zero byte, are left out)
  fs::path prefix;  ///< DIR/NAME of the shard set
  double validation_fraction = 0.05;  ///< of documents, chosen by seed
  uint64_t seed = 42;
  int64_t shard_tokens = 1 << 28;  ///< tokens in one shard at most
};

struct PrepareResult {
  Manifest manifest;
  std::vector<std::string> skipped;  ///< path and reason, for the log
};

/// Text files to byte shards: one file is one document; each non-empty document is followed by one end-of-text token.
/// Both splits get at least one document when there are two or more. A set of the same name is replaced whole only
/// after everything was written. Throws InputError for missing or unreadable sources and when no text was found.
PrepareResult prepare_bytes(const PrepareOptions& options);

}  // namespace mhar::data
