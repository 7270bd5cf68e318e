#include "kernels/clip/cases.h"
#include "kernels/cuda_status.h"

namespace mhar::kernels {
namespace {

CpuDevice device;

TEST(ClipCpu, FollowsTheReference) { expect_clips(kClipCpu, device); }
TEST(ClipCpu, StopsAtWhatIsNotFinite) { expect_stops(kClipCpu, device); }

TEST(ClipCpu, SameBitsForAnyNumberOfThreads) {
  const Values gradient = draw(Element::bf16, 300'001, 1);
  const float norm = run_clip(kClipCpu, device, gradient, 1).norm;
  CpuDevice threads;
  for (const int64_t pieces : {1, 2, 7, 1000}) {
    OutOfOrder order{pieces};
    ParallelFor pool{&order, OutOfOrder::run};
    threads.queue = &pool;
    EXPECT_EQ(run_clip(kClipCpu, threads, gradient, 1).norm, norm) << pieces;
  }
}

TEST(ClipCpu, ABuildWithoutCudaSaysSo) {
  if (built_with_cuda()) GTEST_SKIP() << "this build has the CUDA kernels";
  EXPECT_EQ(clip_cuda({}, nullptr), not_built_with_cuda);
}

}  // namespace
}  // namespace mhar::kernels
