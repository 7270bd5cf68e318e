#include "data/token_file.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>

namespace mhar::data {

static_assert(std::endian::native == std::endian::little, "token files are mapped as they stand: little-endian");

namespace {

template <typename Token>
void widen(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    // A foreign header may leave the tokens at an odd address.
    Token token;
    std::memcpy(&token, from + i * sizeof(Token), sizeof(Token));
    out[i] = token;
  }
}

template <typename Token>
int64_t largest_of(std::span<const std::byte> bytes) {
  Token best = 0;
  for (size_t at = 0; at < bytes.size(); at += sizeof(Token)) {
    Token token;
    std::memcpy(&token, bytes.data() + at, sizeof(Token));
    best = std::max(best, token);
  }
  return best;
}

}  // namespace

TokenFile::TokenFile(const fs::path& path) : file_(path) {
  const NpyLayout layout = parse_npy_header(file_.bytes(), file_.bytes().size(), path.string());
  size_ = layout.size;
  width_ = layout.width;
  offset_ = layout.offset;
}

void TokenFile::copy(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  if (begin < 0 || count > size_ || begin > size_ - count) throw std::out_of_range("TokenFile::copy: past the end");
  const std::byte* from = payload().data() + static_cast<size_t>(begin) * static_cast<size_t>(width_);
  width_ == 2 ? widen<uint16_t>(from, out) : widen<uint32_t>(from, out);
}

int64_t TokenFile::largest() const {
  if (size_ == 0) return -1;
  return width_ == 2 ? largest_of<uint16_t>(payload()) : largest_of<uint32_t>(payload());
}

std::span<const std::byte> TokenFile::payload() const { return file_.bytes().subspan(offset_); }

}  // namespace mhar::data
