#include "ops/place.h"

#include "ops/helpers.h"

namespace mhar::ops {
namespace {

TEST(Place, ViewsShareTheMemoryThatComesAndGoes) {
  for (const at::Device device : testing::devices()) {
    const at::Tensor whole = at::ones({6, 4}, device), part = whole.narrow(0, 2, 3), other = part.view({12});
    const auto position = part.storage_offset();
    EXPECT_TRUE(claimed(part));
    release(whole);
    EXPECT_FALSE(claimed(part));
    EXPECT_EQ(part.sizes(), at::IntArrayRef({3, 4}));
    claim(part);
    EXPECT_TRUE(claimed(whole) && claimed(other));
    EXPECT_EQ(part.storage_offset(), position);
    other.fill_(7);
    EXPECT_EQ(whole.narrow(0, 2, 3).sum().item<float>(), 84);
    const auto* before = whole.data_ptr();
    claim(whole);
    EXPECT_EQ(whole.data_ptr(), before) << "memory that is there stays";
  }
}

TEST(Place, NothingNeedsNoMemory) { EXPECT_TRUE(claimed(at::empty({0, 4}))); }

}  // namespace
}  // namespace mhar::ops
