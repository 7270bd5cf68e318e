// Any bytes as a .safetensors file: a header whose tensors lie inside the file, or an InputError; nothing else.
#include "checkpoint/safetensors.h"

#include <cstdint>
#include <cstdlib>

#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mhar;
  const auto file = std::as_bytes(std::span(data, size));
  try {
    const auto header = checkpoint::parse_safetensors_header(file, "input");
    for (const auto& [name, entry] : header.entries) {
      size_t count = 1;
      for (int64_t extent : entry.shape) count *= static_cast<size_t>(extent);
      const bool inside = header.data <= size && entry.begin <= entry.end && entry.end <= size - header.data;
      if (!inside || entry.end - entry.begin != count * checkpoint::type_bytes(entry.type)) std::abort();
    }
  } catch (const InputError&) {
  }
  return 0;
}
