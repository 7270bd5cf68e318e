// The .npy header, version 1.0: "\x93NUMPY", two version bytes, a 16-bit length and a Python dict of that many bytes.
#include <fmt/format.h>

#include <cstring>
#include <string_view>

#include "base/error.h"
#include "data/token_file.h"

namespace mhar::data {
namespace {

constexpr std::string_view magic = "\x93NUMPY";
constexpr size_t preamble = 10;  // magic, version, length

[[noreturn]] void refuse(const std::string& origin, std::string wanted, std::string got) {
  throw InputError(Fault{"read shard", origin, std::move(wanted), std::move(got),
                         "prepare the text again with mhar data or python -m mhar.data"});
}

/// Reads the dict of a header; every surprise is an InputError.
class Dict {
 public:
  Dict(std::string_view text, const std::string& origin) : text_(text), origin_(origin) {}

  void read() {
    take('{');
    while (!peek('}')) {
      const std::string_view key = quoted();
      take(':');
      if (key == "descr") {
        read_type();
      } else if (key == "fortran_order") {
        if (word() != "False") refuse(origin_, "C order", "fortran_order True");
        has_order_ = true;
      } else if (key == "shape") {
        read_shape();
      } else {
        refuse(origin_, "the keys descr, fortran_order and shape", fmt::format("key '{}'", key));
      }
      if (!peek('}')) take(',');
    }
    take('}');
    skip_space();
    if (at_ != text_.size()) refuse(origin_, "nothing after the header's dict", "more text");
    if (width == 0 || size < 0 || !has_order_) {
      refuse(origin_, "the keys descr, fortran_order and shape", "a header without one of them");
    }
  }

  int width = 0;
  int64_t size = -1;

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool peek(char wanted) {
    skip_space();
    return at_ < text_.size() && text_[at_] == wanted;
  }
  void take(char wanted) {
    if (!peek(wanted)) refuse(origin_, fmt::format("'{}' at byte {} of the header's dict", wanted, at_), found());
    ++at_;
  }
  std::string found() const {
    if (at_ >= text_.size()) return "its end";
    const auto byte = static_cast<unsigned char>(text_[at_]);
    return byte > 32 && byte < 127 ? fmt::format("'{}'", text_[at_]) : fmt::format("byte 0x{:02x}", byte);
  }
  std::string_view quoted() {
    const char quote = peek('"') ? '"' : '\'';
    take(quote);
    const size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) refuse(origin_, "a closing quote in the header's dict", "its end");
    const std::string_view inside = text_.substr(at_, end - at_);
    at_ = end + 1;
    return inside;
  }
  std::string_view word() {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && (text_[at_] | 32) >= 'a' && (text_[at_] | 32) <= 'z') ++at_;
    return text_.substr(begin, at_ - begin);
  }
  void read_type() {
    constexpr const char* wanted = "little-endian uint16 or uint32 tokens ('<u2' or '<u4')";
    if (!peek('\'') && !peek('"')) refuse(origin_, wanted, "a structured type");
    const std::string_view type = quoted();
    if (type != "<u2" && type != "<u4") refuse(origin_, wanted, fmt::format("'{}'", type));
    width = type == "<u2" ? 2 : 4;
  }
  int64_t number() {
    skip_space();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
      if (at_ - begin == 18) refuse(origin_, "a count of tokens", "a number of more than 18 digits");
      value = value * 10 + (text_[at_] - '0');
    }
    if (at_ == begin) refuse(origin_, fmt::format("a number at byte {} of the header's dict", at_), found());
    return value;
  }
  void read_shape() {
    take('(');
    int rank = 0;
    while (!peek(')')) {
      size = number();
      ++rank;
      if (!peek(')')) take(',');
    }
    take(')');
    if (rank != 1) refuse(origin_, "a 1-D array", fmt::format("{} dimensions", rank));
  }

  std::string_view text_;
  const std::string& origin_;
  size_t at_ = 0;
  bool has_order_ = false;
};

}  // namespace

std::string npy_header(int64_t size, int width) {
  std::string dict = fmt::format("{{'descr': '<u{}', 'fortran_order': False, 'shape': ({},), }}", width, size);
  const size_t used = preamble + dict.size() + 1;
  dict.append((64 - used % 64) % 64, ' ');
  dict += '\n';
  std::string header(magic);
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 255), static_cast<char>(dict.size() >> 8)};
  return header + dict;
}

NpyLayout parse_npy_header(std::span<const std::byte> start, uint64_t file_size, const std::string& origin) {
  const std::string_view text(reinterpret_cast<const char*>(start.data()), start.size());
  if (!text.starts_with(magic)) {
    std::string first = text.empty() ? "an empty file" : "a file that begins with bytes";
    for (const char byte : text.substr(0, 8)) first += fmt::format(" {:02x}", static_cast<unsigned char>(byte));
    refuse(origin, "a .npy file of version 1.0", first);
  }
  if (text.size() < preamble) refuse(origin, "a .npy header", fmt::format("a file of {} bytes", text.size()));
  const int major = static_cast<unsigned char>(text[6]);
  const int minor = static_cast<unsigned char>(text[7]);
  if (major != 1 || minor != 0) {
    refuse(origin, "a .npy file of version 1.0", fmt::format("version {}.{}", major, minor));
  }
  const size_t length = static_cast<unsigned char>(text[8]) + size_t{256} * static_cast<unsigned char>(text[9]);
  if (text.size() - preamble < length) {
    refuse(origin, fmt::format("a header of {} bytes", length), fmt::format("{} (truncated)", text.size() - preamble));
  }
  Dict dict(text.substr(preamble, length), origin);
  dict.read();
  const size_t offset = preamble + length;
  const uint64_t bytes = file_size - offset;
  const auto width = static_cast<uint64_t>(dict.width);
  const auto size = static_cast<uint64_t>(dict.size);
  if (size > bytes / width || size * width != bytes) {
    refuse(origin, fmt::format("{} tokens of {} bytes after the header", size, width),
           fmt::format("{} bytes ({})", bytes, size > bytes / width ? "truncated" : "too long"));
  }
  return {dict.size, dict.width, offset};
}

}  // namespace mhar::data
