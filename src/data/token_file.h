#pragma once
#include <cstdint>
#include <span>

#include "base/file.h"

namespace mhar::data {

/// A 1-D little-endian uint16 or uint32 .npy array, memory-mapped. What numpy.load opens, and the other way round.
class TokenFile {
 public:
  /// Throws InputError for anything else: another type, order or rank, a header of another version, a truncated file.
  explicit TokenFile(const fs::path& path);

  int64_t size() const { return size_; }
  int width() const { return width_; }  ///< bytes a token: 2 or 4
  /// Copies tokens [begin, begin + out.size()) as 64-bit ids.
  void copy(int64_t begin, std::span<int64_t> out) const;
  int64_t largest() const;  ///< -1 for an empty file
  std::span<const std::byte> payload() const;

 private:
  MappedFile file_;
  int64_t size_ = 0;
  int width_ = 0;
  size_t offset_ = 0;
};

/// Header of a 1-D .npy file of `size` tokens of `width` bytes (a multiple of 64 bytes long).
std::string npy_header(int64_t size, int width);

struct NpyLayout {
  int64_t size;
  int width;
  size_t offset;
};
/// Reads a header out of the first bytes of a file of `file_size` bytes; the fuzz target's entry.
NpyLayout parse_npy_header(std::span<const std::byte> start, uint64_t file_size, const std::string& origin);

}  // namespace mhar::data
