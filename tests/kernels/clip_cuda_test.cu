#include "kernels/clip/cases.h"
#include "kernels/depth_read/cuda_device.h"

namespace mhar::kernels {
namespace {

class ClipCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaDevice::present()) GTEST_SKIP() << "no CUDA device on this machine";
  }
  CudaDevice device_;
};

TEST_F(ClipCuda, FollowsTheReference) { expect_clips(kClipCuda, device_); }
TEST_F(ClipCuda, StopsAtWhatIsNotFinite) { expect_stops(kClipCuda, device_); }

TEST_F(ClipCuda, SameBitsAgain) {
  for (const Element type : kStorage) {
    const Values gradient = draw(type, 20'000'003, 1);
    const float norm = run_clip(kClipCuda, device_, gradient, 1).norm;
    for (int again = 0; again < 20; ++again) EXPECT_EQ(run_clip(kClipCuda, device_, gradient, 1).norm, norm);
  }
}

}  // namespace
}  // namespace mhar::kernels
