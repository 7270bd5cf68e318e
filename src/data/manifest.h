#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace mhar::data {

/// What turned text into token ids, as stored in a manifest and in every checkpoint trained on it.
struct Tokenizer {
  std::string kind = "bytes";  ///< bytes (256 values, end-of-text 256) or huggingface (a tokenizer.json)
  std::string name = "bytes";  ///< for people; the tokenizer file's name for huggingface
  std::string hash;            ///< XXH3-128 of the tokenizer file; empty for bytes
  int64_t vocabulary = 257;    ///< ids are below this
  int64_t end_of_text = 256;   ///< follows every non-empty document
  bool operator==(const Tokenizer&) const = default;
};

struct Shard {
  std::string file;  ///< name beside the manifest: NAME-00000.npy, NAME-validation-00000.npy
  int64_t tokens = 0;
  std::string hash;  ///< XXH3-128 of the token bytes (the .npy file without its header)
  bool operator==(const Shard&) const = default;
};

struct Split {
  std::vector<Shard> shards;
  int64_t tokens = 0, documents = 0;
  int64_t bytes = 0;  ///< of the text the tokens stand for; end-of-text tokens add none
  bool operator==(const Split&) const = default;
};

/// NAME.json beside the shards.
struct Manifest {
  Tokenizer tokenizer;
  int64_t seed = 0;  ///< of the split
  double validation_fraction = 0.0;
  double unigram_bits_per_byte = 0.0;  ///< entropy of the token frequencies of both splits together, per byte of text
  Split train, validation;
  std::string source_hash;  ///< XXH3-128 over the documents' bytes in order, a zero byte after each

  /// Identifies the training stream and its tokenizer: what a checkpoint stores and compares on resume.
  std::string hash() const;
};

/// `prefix` is DIR/NAME (DIR/NAME.json is taken too). Throws InputError for a missing, broken or foreign manifest
/// (format version other than ours), naming what was wanted and found.
Manifest read_manifest(const fs::path& prefix);
void write_manifest(const fs::path& prefix, const Manifest& manifest);
std::string to_json(const Manifest& manifest);
Manifest parse_manifest(const std::string& json, const std::string& origin);

}  // namespace mhar::data
