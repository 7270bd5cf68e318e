// norm, swiglu and qk_rope on the CPU.
#include "kernels/cuda_status.h"
#include "kernels/pointwise/norm.h"
#include "kernels/pointwise/qk_rope.h"
#include "kernels/pointwise/swiglu.h"

namespace mhar::kernels {
namespace {

CpuDevice device;

TEST(NormCpu, FollowsTheReference) { expect_norms(norm_kernels_cpu(), device); }
TEST(SwigluCpu, FollowsTheReference) { expect_swiglus(swiglu_kernels_cpu(), device); }
TEST(SwigluCpu, FarFromZero) { expect_swiglu_ends(swiglu_kernels_cpu(), device); }
TEST(QkRopeCpu, FollowsTheReference) { expect_qk_ropes(qk_rope_kernels_cpu(), device); }

TEST(PointwiseCpu, SameBitsForAnyNumberOfThreads) {
  CpuDevice threads;
  for (const Element type : kStorage) {
    const NormCase norm{{300, 123, type, 1e-6}};
    const QkRopeCase heads{{300, 4, 2, 80, 100, type}};
    const Values gate_up = draw(type, 300 * 80, 1), du = draw(type, 300 * 40, 2);
    const auto gated = [&](Device& on) {
      return run_swiglu(swiglu_kernels_cpu(), on, {300, 40, type}, gate_up, du, 0, false);
    };
    const NormOutcome normed = run_norm(norm_kernels_cpu(), device, norm);
    const QkRopeOutcome turned = run_qk_rope(qk_rope_kernels_cpu(), device, heads);
    for (const int64_t pieces : {1, 2, 7, 1000}) {
      OutOfOrder order{pieces};
      ParallelFor pool{&order, OutOfOrder::run};
      threads.queue = &pool;
      EXPECT_TRUE(run_norm(norm_kernels_cpu(), threads, norm) == normed) << pieces;
      EXPECT_TRUE(run_qk_rope(qk_rope_kernels_cpu(), threads, heads) == turned) << pieces;
      EXPECT_TRUE(gated(threads) == gated(device)) << pieces;
    }
  }
}

TEST(PointwiseCpu, SaysWhatItDoesNotTake) {
  EXPECT_EQ(norm_kernels_cpu().refuses({1, 100'000, Element::bf16, 1e-6}), nullptr);
  EXPECT_STREQ(norm_kernels_cpu().refuses({1, 8, Element::f64, 1e-6}), "other types than fp32 and bf16");
  EXPECT_STREQ(swiglu_kernels_cpu().refuses({1, 8, Element::f16}), "other types than fp32 and bf16");
  for (const int64_t k : {3, 258}) {
    EXPECT_STREQ(qk_rope_kernels_cpu().refuses({1, 1, 1, k, 1, Element::f32}),
                 "head dimensions that are odd or above 256");
  }
}

TEST(PointwiseCpu, ABuildWithoutCudaSaysSo) {
  if (built_with_cuda()) GTEST_SKIP() << "this build has the CUDA kernels";
  EXPECT_NE(norm_kernels_cuda().refuses({1, 8, Element::f32, 1e-6}), nullptr);
  EXPECT_NE(swiglu_kernels_cuda().refuses({1, 8, Element::f32}), nullptr);
  EXPECT_NE(qk_rope_kernels_cuda().refuses({1, 1, 1, 64, 1, Element::f32}), nullptr);
  EXPECT_EQ(norm_kernels_cuda().forward({}, {}, nullptr), not_built_with_cuda);
  EXPECT_EQ(norm_kernels_cuda().backward({}, {}, nullptr), not_built_with_cuda);
  EXPECT_EQ(swiglu_kernels_cuda().forward({}, {}, nullptr), not_built_with_cuda);
  EXPECT_EQ(swiglu_kernels_cuda().backward({}, {}, nullptr), not_built_with_cuda);
  EXPECT_EQ(qk_rope_kernels_cuda().forward({}, {}, nullptr), not_built_with_cuda);
  EXPECT_EQ(qk_rope_kernels_cuda().backward({}, {}, nullptr), not_built_with_cuda);
}

}  // namespace
}  // namespace mhar::kernels
