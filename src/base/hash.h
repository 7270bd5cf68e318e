#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace mhar {

/// XXH3-128 over bytes given in pieces; hex() is the 32-digit canonical (big-endian) form that Python's
/// xxhash.xxh3_128_hexdigest prints.
class Hash {
 public:
  Hash();
  ~Hash();
  void update(std::span<const std::byte> bytes);
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string hash_hex(std::span<const std::byte> bytes);

}  // namespace mhar
