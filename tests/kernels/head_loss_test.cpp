#include "kernels/cuda_status.h"
#include "kernels/head_loss/cases.h"

namespace mhar::kernels {
namespace {

CpuDevice device;

TEST(HeadLossCpu, FollowsTheReference) { expect_head_losses(head_loss_kernels_cpu(), device); }
TEST(HeadLossCpu, KeepsTheDigitsOfANearlyCertainTarget) { expect_nearly_certain(head_loss_kernels_cpu(), device); }
TEST(HeadLossCpu, ShowsWhatIsNotFinite) { expect_faults_seen(head_loss_kernels_cpu(), device); }

TEST(HeadLossCpu, SameBitsForAnyNumberOfThreads) {
  const HeadLossCase c{{31, 123, Element::bf16}, 1e-3};
  const Values logits = draw(Element::bf16, 31 * 123, 1);
  const auto one = run_head_loss(head_loss_kernels_cpu(), device, c, logits, spread_targets(c.sizes));
  CpuDevice threads;
  for (const int64_t pieces : {1, 2, 7, 1000}) {
    OutOfOrder order{pieces};
    ParallelFor pool{&order, OutOfOrder::run};
    threads.queue = &pool;
    EXPECT_TRUE(run_head_loss(head_loss_kernels_cpu(), threads, c, logits, spread_targets(c.sizes)) == one) << pieces;
  }
}

TEST(HeadLossCpu, SaysWhatItDoesNotTake) {
  EXPECT_EQ(head_loss_kernels_cpu().refuses({1, 151936, Element::bf16}), nullptr);
  EXPECT_STREQ(head_loss_kernels_cpu().refuses({1, 8, Element::f64}), "other types than fp32 and bf16");
  if (built_with_cuda()) return;
  EXPECT_NE(head_loss_kernels_cuda().refuses({1, 8, Element::f32}), nullptr);
  EXPECT_EQ(head_loss_kernels_cuda().run({}, {}, nullptr), not_built_with_cuda);
}

}  // namespace
}  // namespace mhar::kernels
