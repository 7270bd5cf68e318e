// norm, swiglu and qk_rope on a GPU.
#include "kernels/depth_read/cuda_device.h"
#include "kernels/pointwise/norm.h"
#include "kernels/pointwise/qk_rope.h"
#include "kernels/pointwise/swiglu.h"

namespace mhar::kernels {
namespace {

class PointwiseCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CudaDevice::present()) GTEST_SKIP() << "no CUDA device on this machine";
  }
  CudaDevice device_;
};

TEST_F(PointwiseCuda, Norms) { expect_norms(norm_kernels_cuda(), device_); }
TEST_F(PointwiseCuda, NormsOfManyRows) {
  for (const Element type : kStorage) {
    for (const int64_t width : {123, 512, 1280}) expect_norm(norm_kernels_cuda(), device_, {{5003, width, type, 1e-6}});
  }
}
TEST_F(PointwiseCuda, NormsSameBitsAgain) { expect_norm_same_bits(norm_kernels_cuda(), device_, 20); }
TEST_F(PointwiseCuda, Swiglus) { expect_swiglus(swiglu_kernels_cuda(), device_); }
TEST_F(PointwiseCuda, SwigluFarFromZero) { expect_swiglu_ends(swiglu_kernels_cuda(), device_); }
TEST_F(PointwiseCuda, QkRopes) { expect_qk_ropes(qk_rope_kernels_cuda(), device_); }
TEST_F(PointwiseCuda, QkRopesOfManyRows) {
  for (const Element type : kStorage) {
    for (const int64_t k : {64, 80, 66}) {
      expect_qk_rope(qk_rope_kernels_cuda(), device_, {{2002, 16, 8, k, 1001, type}, true, true});
    }
  }
}
TEST_F(PointwiseCuda, QkRopesSameBitsAgain) { expect_qk_rope_same_bits(qk_rope_kernels_cuda(), device_, 20); }

TEST_F(PointwiseCuda, RowsWiderThanABlockAreRefused) {
  EXPECT_EQ(norm_kernels_cuda().refuses({1, 4096, Element::bf16, 1e-6}), nullptr);
  EXPECT_NE(norm_kernels_cuda().refuses({1, 4097, Element::bf16, 1e-6}), nullptr);
}

}  // namespace
}  // namespace mhar::kernels
