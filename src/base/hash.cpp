#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>

namespace mhar {

struct Hash::State {
  XXH3_state_t value;
};

Hash::Hash() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->value); }
Hash::~Hash() = default;

void Hash::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->value, bytes.data(), bytes.size());
}

std::string Hash::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->value));
  constexpr std::array<char, 17> digits{"0123456789abcdef"};
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

std::string hash_hex(std::span<const std::byte> bytes) {
  Hash hash;
  hash.update(bytes);
  return hash.hex();
}

}  // namespace mhar
