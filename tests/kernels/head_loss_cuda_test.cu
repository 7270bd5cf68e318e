#include "kernels/depth_read/cuda_device.h"
#include "kernels/head_loss/cases.h"

namespace mhar::kernels {
namespace {

class HeadLossCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaDevice::present()) GTEST_SKIP() << "no CUDA device on this machine";
  }
  const HeadLossKernels& kernels_ = head_loss_kernels_cuda();
  CudaDevice device_;
};

TEST_F(HeadLossCuda, FollowsTheReference) { expect_head_losses(kernels_, device_); }
TEST_F(HeadLossCuda, KeepsTheDigitsOfANearlyCertainTarget) { expect_nearly_certain(kernels_, device_); }
TEST_F(HeadLossCuda, ShowsWhatIsNotFinite) { expect_faults_seen(kernels_, device_); }

TEST_F(HeadLossCuda, SameBitsAgain) {
  for (const Element type : kStorage) {
    const HeadLossCase c{{300, 33000, type}, 1e-3};
    const Values logits = draw(type, c.sizes.rows * c.sizes.classes, 1);
    const auto first = run_head_loss(kernels_, device_, c, logits, spread_targets(c.sizes));
    for (int again = 0; again < 5; ++again) {
      EXPECT_TRUE(run_head_loss(kernels_, device_, c, logits, spread_targets(c.sizes)) == first);
    }
  }
}

// Field case 39: the last row of more logits than 32 bits count. All rows but the ends are NaN and not counted.
TEST_F(HeadLossCuda, MoreLogitsThan32BitsCount) {
  const HeadLossSizes z{14300, 151936, Element::bf16};
  const Values ends = draw(z.type, 2 * z.classes, 9);
  const auto wanted = run_head_loss(kernels_, device_, {{2, z.classes, z.type}}, ends, {3, z.classes - 1});
  const int64_t row = z.classes * bytes_of(z.type), last = (z.rows - 1) * row;
  std::vector<int64_t> targets(z.rows, -1);
  targets.front() = 3, targets.back() = z.classes - 1;
  Memory logits(device_, z.rows * row), places(device_, z.rows * 8), loss(device_, z.rows * 4);
  device_.upload(logits.at(), ends.bytes.data(), row);
  device_.upload(logits.at(last), ends.bytes.data() + row, row);
  device_.upload(places.at(), targets.data(), z.rows * 8);
  expect_done(device_, kernels_.run(z,
                                    {.logits = logits.at(),
                                     .targets = static_cast<const int64_t*>(places.at()),
                                     .loss = static_cast<float*>(loss.at()),
                                     .weight = kHeadLossWeight},
                                    nullptr));
  EXPECT_EQ(loss.read(Element::f32, 1).at(0), wanted.loss.at(0));
  EXPECT_EQ(loss.read(Element::f32, 1, (z.rows - 1) * 4).at(0), wanted.loss.at(1));
  Values got = logits.read(z.type, z.classes);
  const Values end = logits.read(z.type, z.classes, last);
  got.bytes.insert(got.bytes.end(), end.bytes.begin(), end.bytes.end());
  EXPECT_TRUE(got == wanted.gradient);
  EXPECT_EQ(logits.read(z.type, 1, last - 2).at(0), 0.0);
}

}  // namespace
}  // namespace mhar::kernels
