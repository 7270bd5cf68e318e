#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace mhar::checkpoint {

/// Element types we read and write, by their safetensors names.
enum class Type { f64, f32, f16, bf16, i64, i32, u8 };
std::string type_name(Type type);  ///< "F32", "BF16", ...
size_t type_bytes(Type type);

/// A tensor's place in a file: row-major, contiguous, little-endian.
struct Entry {
  Type type;
  std::vector<int64_t> shape;
  size_t begin, end;  ///< bytes after the header
};

/// A tensor to write; `bytes` must stay valid during the call.
struct View {
  std::string name;
  Type type;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

/// Writes tensors and flushes to disk. The first tensor byte is aligned to 64; wide types come first, otherwise the
/// given order stays, so that every tensor is aligned to its elements (the format allows no padding between tensors).
/// `metadata` becomes __metadata__. Throws InputError for a disk that is full or a name that is not UTF-8.
void write_safetensors(const fs::path& path, const std::vector<View>& tensors,
                       const std::map<std::string, std::string>& metadata);

/// A .safetensors file, memory-mapped.
class SafetensorsFile {
 public:
  /// Throws InputError for a missing, truncated or foreign file: the header must be valid, without overlaps or holes
  /// that reach past the file, and every shape must match its byte range.
  explicit SafetensorsFile(const fs::path& path);

  const std::map<std::string, Entry>& entries() const { return entries_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  std::span<const std::byte> bytes(const Entry& entry) const;
  const fs::path& path() const { return file_.path(); }

 private:
  MappedFile file_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
  size_t data_ = 0;
};

struct Header {
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> metadata;
  size_t data;  ///< offset of the first tensor byte in the file
};
/// The fuzz target's entry: a whole file's bytes.
Header parse_safetensors_header(std::span<const std::byte> file, const std::string& origin);

/// Every tensor of a model folder: model.safetensors, or the shards that model.safetensors.index.json names (the one
/// file wins when both are there). Throws InputError when a shard is missing or the index and the shards disagree in
/// any way, naming the tensor and the shard.
class ModelFiles {
 public:
  explicit ModelFiles(const fs::path& folder);
  bool has(const std::string& name) const { return where_.contains(name); }
  std::vector<std::string> names() const;
  const Entry& entry(const std::string& name) const;  ///< name must be there
  std::span<const std::byte> bytes(const std::string& name) const;

 private:
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t> where_;
};

}  // namespace mhar::checkpoint
