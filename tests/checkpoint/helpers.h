#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace mhar::checkpoint {

/// A folder of its own for one test, removed with it.
class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "mhar-checkpoint-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }
  fs::path operator/(const std::string& name) const { return path_ / name; }

 private:
  fs::path path_;
};

inline void put(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// The message of the InputError that `action` throws; empty when it throws none.
template <typename Action>
std::string message_of(Action&& action) {
  try {
    action();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

/// A file with this header text and `data` bytes of zeros after it.
inline std::string file_of(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data, '\0');
}

inline std::string fault_of_bytes(const std::string& file) {
  return message_of(
      [&] { parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())), "x.safetensors"); });
}

/// A file at `path` with one F32 tensor of one element under each name.
inline void put_tensors(const fs::path& path, const std::vector<std::string>& names) {
  const float value = 1.0f;
  std::vector<View> views;
  for (const auto& name : names) views.push_back({name, Type::f32, {1}, std::as_bytes(std::span(&value, 1))});
  write_safetensors(path, views, {});
}

}  // namespace mhar::checkpoint
