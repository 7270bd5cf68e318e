#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/hash.h"
#include "data/manifest.h"

namespace mhar::data {

/// Writes one split's tokens as FOLDER/STEM-00000.npy and so on, each filled to `shard_tokens` before the next begins
/// (a document may go on in the next shard). Every write error is an InputError.
class ShardWriter {
 public:
  ShardWriter(fs::path folder, std::string stem, int width, int64_t shard_tokens);
  void append(std::span<const uint32_t> ids);  ///< ids must fit the width
  std::vector<Shard> finish();                 ///< flushes the last shard to the disk

 private:
  void open();
  void flush();  ///< buffered tokens to the file and the hash
  void close();

  fs::path folder_;
  std::string stem_;
  int width_;
  int64_t shard_tokens_;
  std::unique_ptr<FileWriter> file_;
  std::unique_ptr<Hash> hash_;
  int64_t tokens_ = 0;  ///< in the open shard, buffered ones included
  std::vector<std::byte> buffer_;
  std::vector<Shard> shards_;
};

}  // namespace mhar::data
