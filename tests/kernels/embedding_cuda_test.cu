#include <algorithm>
#include <numeric>

#include "kernels/depth_read/cuda_device.h"
#include "kernels/embedding/embedding.h"
#include "kernels/pointwise/cases.h"

namespace mhar::kernels {
namespace {

struct Case {
  EmbeddingSizes sizes;
  int64_t classes;      // V
  double crowding = 1;  // ids are V u^crowding: above 1, few of them take most tokens
  int64_t shift = 0;
};

std::vector<int64_t> ids_of(const Case& c) {
  std::mt19937_64 generator(7);
  std::uniform_real_distribution<double> share(0.0, 1.0);
  std::vector<int64_t> ids(c.sizes.tokens);
  for (auto& id : ids) id = static_cast<int64_t>(c.classes * std::pow(share(generator), c.crowding));
  return ids;
}

template <typename T>
std::vector<T> sums_of(const Case& c, const std::vector<T>& table, const std::vector<T>& gradient) {
  const auto ids = ids_of(c);
  const int64_t D = c.sizes.width;
  std::vector<T> sums(table.size());
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t d = 0; d < D; ++d) sums[ids[t] * D + d] += gradient[t * D + d];
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += table[i];
  return sums;
}

class EmbeddingCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaDevice::present()) GTEST_SKIP() << "no CUDA device on this machine";
  }

  Values run(const Case& c, const Values& table, const Values& gradient) {
    const auto& kernels = embedding_kernels_cuda();
    const auto ids = ids_of(c);
    std::vector<int64_t> order(ids.size());
    std::vector<int32_t> sorted;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return ids[a] < ids[b]; });
    for (const int64_t token : order) sorted.push_back(static_cast<int32_t>(ids[token]));
    const int64_t bytes = c.sizes.tokens * 8;
    const Memory places(device_, bytes / 2), orders(device_, bytes), scratch(device_, kernels.scratch_bytes(c.sizes));
    device_.upload(places.at(), sorted.data(), bytes / 2);
    device_.upload(orders.at(), order.data(), bytes);
    const Shifted x(device_, gradient, c.shift), e(device_, table, c.shift);
    const EmbeddingBackward b{static_cast<const int32_t*>(places.at()), static_cast<const int64_t*>(orders.at()),
                              x.at(), e.at(), scratch.at()};
    expect_done(device_, kernels.backward(c.sizes, b, device_.queue));
    return e.read(c.sizes.type, table.count());
  }

  void expect_sums(const Case& c) {
    SCOPED_TRACE(std::string(name_of(c.sizes.type)) + " P " + std::to_string(c.sizes.tokens) + " D " +
                 std::to_string(c.sizes.width) + " crowding " + std::to_string(c.crowding));
    const Values table = draw(c.sizes.type, c.classes * c.sizes.width, 1);
    const Values gradient = draw(c.sizes.type, c.sizes.tokens * c.sizes.width, 2);
    const Values got = run(c, table, gradient);
    Measured rule;
    compare(rule, got, sums_of(c, floats(table), floats(gradient)), sums_of(c, table.numbers(), gradient.numbers()));
    rule.expect("dE");
    const auto ids = ids_of(c);
    for (int64_t v = 0; v < c.classes; ++v) {
      if (std::find(ids.begin(), ids.end(), v) != ids.end()) continue;
      for (int64_t d = 0; d < c.sizes.width; ++d) {
        const int64_t i = v * c.sizes.width + d;
        ASSERT_EQ(got.at(i), table.at(i)) << "row " << v << " has no token";
      }
    }
  }
  CudaDevice device_;
};

TEST_F(EmbeddingCuda, FollowsTheReference) {
  for (const Element type : kStorage) {
    for (const int64_t tokens : {0, 1, 31, 32, 33, 64, 100, 1000}) {
      for (const int64_t width : {1, 8, 40, 123, 512, 1280, 4096}) {
        if (tokens * width > 600'000) continue;
        expect_sums({{tokens, width, type}, 50});
        expect_sums({{tokens, width, type}, 300, 4});
      }
      expect_sums({{tokens, 40, type}, 1});  // one run over all pieces
      expect_sums({{tokens, 40, type}, 50, 1, 1});
    }
  }
}

TEST_F(EmbeddingCuda, SameBitsAgain) {
  for (const Element type : kStorage) {
    const Case c{{5000, 64, type}, 400, 5};
    const Values table = draw(type, c.classes * 64, 1), gradient = draw(type, 5000 * 64, 2);
    const Values first = run(c, table, gradient);
    for (int again = 0; again < 20; ++again) EXPECT_TRUE(run(c, table, gradient) == first);
  }
}

}  // namespace
}  // namespace mhar::kernels
