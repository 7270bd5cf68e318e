#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "checkpoint/strict_json.h"

namespace mhar::checkpoint {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors bytes are mapped and written as they lie");

struct TypeRow {
  Type type;
  const char* name;
  size_t bytes;
};
constexpr std::array<TypeRow, 7> types = {{{Type::f64, "F64", 8},
                                           {Type::f32, "F32", 4},
                                           {Type::f16, "F16", 2},
                                           {Type::bf16, "BF16", 2},
                                           {Type::i64, "I64", 8},
                                           {Type::i32, "I32", 4},
                                           {Type::u8, "U8", 1}}};

const TypeRow& row(Type type) {
  return *std::find_if(types.begin(), types.end(), [type](const TypeRow& r) { return r.type == type; });
}

constexpr size_t length_bytes = 8;              // the header's length, before the header
constexpr uint64_t longest_header = 100000000;  // the format's own limit
constexpr size_t alignment = 64;
constexpr int header_depth = 3;  // header, tensor, shape
constexpr const char* metadata_key = "__metadata__";
constexpr const char* operation = "read safetensors";
constexpr const char* copy_again = "copy or export the file again";

/// Bytes of a tensor, or nothing when they do not fit 63 bits.
std::optional<size_t> size_of(Type type, const std::vector<int64_t>& shape) {
  // A zero anywhere makes the tensor empty, whatever the other extents are.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  int64_t size = static_cast<int64_t>(type_bytes(type));
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(size, extent, &size)) return std::nullopt;
  }
  return static_cast<size_t>(size);
}

class HeaderReader {
 public:
  HeaderReader(std::span<const std::byte> file, const std::string& origin) : file_(file), origin_(origin) {}

  Header read() {
    if (file_.size() < length_bytes) {
      fail("", "a safetensors file", fmt::format("a file of {} bytes", file_.size()));
    }
    uint64_t length = 0;
    std::memcpy(&length, file_.data(), length_bytes);
    const uint64_t rest = file_.size() - length_bytes;
    if (length > longest_header) {
      fail("", "a safetensors file", fmt::format("a file that does not begin like one (header of {} bytes)", length));
    }
    if (length > rest) {
      fail("", fmt::format("a header of {} bytes", length), fmt::format("a file that ends after {} of them", rest));
    }
    header_.data = length_bytes + length;
    const std::string_view text(reinterpret_cast<const char*>(file_.data()) + length_bytes, length);
    if (text.empty() || text.front() != '{') fail("", "a header that begins with {", excerpt(text.substr(0, 8)));
    const auto json = parse_strict_json(text, header_depth, operation, origin_);
    for (const auto& [name, value] : json.items()) {
      if (name == metadata_key) {
        read_metadata(value);
      } else {
        header_.entries.emplace(name, read_entry(name, value));
      }
    }
    check_ranges();
    return std::move(header_);
  }

 private:
  using Json = nlohmann::json;

  [[noreturn]] void fail(const std::string& tensor, const std::string& wanted, const std::string& got) const {
    const std::string where = tensor.empty() ? origin_ : fmt::format("{}, tensor {}", origin_, excerpt(tensor));
    throw InputError({operation, where, wanted, got, copy_again});
  }

  void read_metadata(const Json& value) {
    if (!value.is_object()) fail(metadata_key, "an object of texts", value.type_name());
    for (const auto& [key, text] : value.items()) {
      if (!text.is_string()) fail(metadata_key, "a text for " + excerpt(key), text.type_name());
      header_.metadata.emplace(key, text.get<std::string>());
    }
  }

  size_t offset(const std::string& name, const Json& value) const {
    if (!value.is_number_unsigned()) fail(name, "whole byte offsets of 0 or more", value.type_name());
    return value.get<uint64_t>();
  }

  Entry read_entry(const std::string& name, const Json& value) const {
    if (!value.is_object()) fail(name, "an object with dtype, shape and data_offsets", value.type_name());
    for (const auto& [key, unused] : value.items()) {
      if (key != "dtype" && key != "shape" && key != "data_offsets") {
        fail(name, "dtype, shape and data_offsets alone", excerpt(key));
      }
    }
    if (value.size() != 3) fail(name, "dtype, shape and data_offsets", fmt::format("{} of them", value.size()));
    const Json& type = value.at("dtype");
    if (!type.is_string()) fail(name, "a type name", type.type_name());
    const auto& word = type.get_ref<const std::string&>();
    const auto known = std::find_if(types.begin(), types.end(), [&](const TypeRow& r) { return r.name == word; });
    if (known == types.end()) fail(name, "one of F64, F32, F16, BF16, I64, I32, U8", excerpt(word));

    const Json& shape = value.at("shape");
    if (!shape.is_array()) fail(name, "a shape list", shape.type_name());
    Entry entry{known->type, {}, 0, 0};
    for (const Json& extent : shape) {
      const bool whole = extent.is_number_unsigned();
      if (!whole || extent.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail(name, "whole extents of 0 or more", extent.is_number() ? extent.dump() : extent.type_name());
      }
      entry.shape.push_back(extent.get<int64_t>());
    }
    const Json& offsets = value.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2)
      fail(name, "two data_offsets", offsets.is_array() ? fmt::format("{}", offsets.size()) : offsets.type_name());
    entry.begin = offset(name, offsets[0]);
    entry.end = offset(name, offsets[1]);
    const auto size = size_of(entry.type, entry.shape);
    if (!size) fail(name, "a shape that fits memory", fmt::format("[{}]", fmt::join(entry.shape, ", ")));
    if (entry.end < entry.begin || entry.end - entry.begin != *size) {
      fail(name, fmt::format("{} bytes for {} [{}]", *size, word, fmt::join(entry.shape, ", ")),
           fmt::format("data_offsets {} to {}", entry.begin, entry.end));
    }
    return entry;
  }

  /// The tensors must fill the rest of the file without a gap: anything else is a damaged file, and bytes that no
  /// tensor owns could hide a second content.
  void check_ranges() const {
    std::vector<std::pair<const Entry*, const std::string*>> order;
    for (const auto& [name, entry] : header_.entries) order.emplace_back(&entry, &name);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
      return std::pair(a.first->begin, a.first->end) < std::pair(b.first->begin, b.first->end);
    });
    const size_t there = file_.size() - header_.data;
    size_t filled = 0;
    for (const auto& [entry, name] : order) {
      if (entry->begin != filled) {
        const std::string kind = entry->begin < filled ? "an overlap" : "a hole";
        fail(*name, fmt::format("tensor bytes from {}", filled), fmt::format("{}: from {}", kind, entry->begin));
      }
      if (entry->end > there) {
        fail(*name, fmt::format("{} bytes of tensors", entry->end), fmt::format("a file that ends after {}", there));
      }
      filled = entry->end;
    }
    if (filled != there) {
      fail("", fmt::format("{} bytes of tensors", filled), fmt::format("{} bytes after the header", there));
    }
  }

  std::span<const std::byte> file_;
  const std::string& origin_;
  Header header_{};
};

std::string header_text(const std::vector<const View*>& order, const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{}", metadata_key, nlohmann::json(metadata).dump());
  size_t begin = 0;
  for (const View* view : order) {
    const size_t end = begin + view->bytes.size();
    text +=
        fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}", text.size() > 1 ? "," : "",
                    nlohmann::json(view->name).dump(), type_name(view->type), fmt::join(view->shape, ","), begin, end);
    begin = end;
  }
  text += "}";
  const size_t ragged = (length_bytes + text.size()) % alignment;
  if (ragged != 0) text.append(alignment - ragged, ' ');
  return text;
}

}  // namespace

std::string type_name(Type type) { return row(type).name; }
size_t type_bytes(Type type) { return row(type).bytes; }

Header parse_safetensors_header(std::span<const std::byte> file, const std::string& origin) {
  return HeaderReader(file, origin).read();
}

void write_safetensors(const fs::path& path, const std::vector<View>& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::set<std::string> names = {metadata_key};
  std::vector<const View*> order;
  for (const View& view : tensors) {
    if (!names.insert(view.name).second) throw std::invalid_argument("write_safetensors: name taken: " + view.name);
    if (size_of(view.type, view.shape) != view.bytes.size()) {
      throw std::invalid_argument("write_safetensors: shape and bytes differ: " + view.name);
    }
    order.push_back(&view);
  }
  // The format knows no padding between tensors: wide types first keeps each one aligned to its own elements.
  std::stable_sort(order.begin(), order.end(),
                   [](const View* a, const View* b) { return type_bytes(a->type) > type_bytes(b->type); });
  std::string text;
  try {
    text = header_text(order, metadata);
  } catch (const nlohmann::json::exception&) {
    throw InputError({"write safetensors", path.string(), "names and metadata in UTF-8", "other bytes",
                      "use paths and names in UTF-8"});
  }
  const uint64_t length = text.size();
  FileWriter file(path);
  file.write(std::as_bytes(std::span(&length, 1)));
  file.write(text);
  for (const View* view : order) file.write(view->bytes);
  file.close();
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : file_(path) {
  Header header = parse_safetensors_header(file_.bytes(), path.string());
  entries_ = std::move(header.entries);
  metadata_ = std::move(header.metadata);
  data_ = header.data;
}

std::span<const std::byte> SafetensorsFile::bytes(const Entry& entry) const {
  return file_.bytes().subspan(data_ + entry.begin, entry.end - entry.begin);
}

}  // namespace mhar::checkpoint
