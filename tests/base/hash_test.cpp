#include "base/hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace mhar {
namespace {

std::vector<std::byte> counting(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

// Printed by Python: xxhash.xxh3_128_hexdigest(bytes(i % 251 for i in range(size))).
TEST(Hash, IsPythonsXxh3) {
  EXPECT_EQ(hash_hex({}), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_hex(counting(3)), "e3b55f57945a17cf5f4299fc161c9cbb");
  EXPECT_EQ(hash_hex(counting(100)), "da95ef16fd9566f329b20ba5f03ec01e");
  EXPECT_EQ(hash_hex(counting(1000000)), "00d4a9d9f77c7d2ddf99c4163891c544");
}

TEST(Hash, DoesNotDependOnThePieces) {
  const std::vector<std::byte> bytes = counting(100000);
  Hash pieces;
  size_t at = 0;
  for (size_t step = 1; at < bytes.size(); step = step * 3 + 1) {
    const size_t count = std::min(step, bytes.size() - at);
    pieces.update(std::span(bytes).subspan(at, count));
    at += count;
  }
  EXPECT_EQ(pieces.hex(), hash_hex(bytes));
}

TEST(Hash, GoesOnAfterHex) {
  Hash hash;
  hash.update(counting(10));
  EXPECT_EQ(hash.hex(), hash.hex());
  const std::string before = hash.hex();
  hash.update(counting(1));
  EXPECT_NE(hash.hex(), before);
}

}  // namespace
}  // namespace mhar
