// Any text as a configuration: options that write and read back unchanged, or an InputError; nothing else.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "config/options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mhar;
  RunConfig config;
  try {
    parse_toml(std::string(reinterpret_cast<const char*>(data), size), "input", config);
  } catch (const InputError&) {
    return 0;
  }
  RunConfig again;
  const std::string text = to_toml(config);
  parse_toml(text, "written", again);
  if (to_toml(again) != text) std::abort();
  try {
    const RunConfig resolved = resolve(config);
    if (to_toml(resolve(resolved)) != to_toml(resolved)) std::abort();
  } catch (const InputError&) {
  }
  return 0;
}
