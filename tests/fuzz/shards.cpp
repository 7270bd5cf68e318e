// Any bytes as a token file's header or as a manifest: they parse or are refused with an InputError, nothing else.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "base/error.h"
#include "data/manifest.h"
#include "data/token_file.h"

namespace {

void try_npy(std::span<const std::byte> bytes) {
  const mhar::data::NpyLayout layout = mhar::data::parse_npy_header(bytes, bytes.size(), "fuzz");
  const auto payload = static_cast<uint64_t>(layout.size) * static_cast<uint64_t>(layout.width);
  if (layout.offset + payload != bytes.size()) std::abort();
}

void try_manifest(const std::string& text) {
  const mhar::data::Manifest manifest = mhar::data::parse_manifest(text, "fuzz");
  const mhar::data::Manifest again = mhar::data::parse_manifest(mhar::data::to_json(manifest), "fuzz");
  if (again.hash() != manifest.hash()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const uint8_t> bytes(data, size);
  try {
    try_npy(std::as_bytes(bytes));
  } catch (const mhar::InputError&) {
  }
  try {
    try_manifest(std::string(bytes.begin(), bytes.end()));
  } catch (const mhar::InputError&) {
  }
  return 0;
}
