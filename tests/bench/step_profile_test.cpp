// Kinds of kernels by their names, and what a trace adds up to.
#include "bench/step_profile.h"

#include <gtest/gtest.h>

#include "bench/step_kinds.h"

namespace mhar::bench {
namespace {

TEST(StepKinds, KernelsOfThisProject) {
  const std::string room = "void mhar::kernels::(anonymous namespace)::";
  EXPECT_EQ(kind_of(room + "near_forward_kernel<8>(mhar::kernels::Forward)"), StepKind::reads);
  EXPECT_EQ(kind_of(room + "far_forward_pairs_kernel<4>(mhar::kernels::Forward)"), StepKind::reads);
  EXPECT_EQ(kind_of(room + "key_sums_kernel(mhar::kernels::Keys)"), StepKind::reads);
  EXPECT_EQ(kind_of(room + "norm_backward_kernel<float>(mhar::kernels::NormSizes)"), StepKind::pointwise);
  EXPECT_EQ(kind_of(room + "forward_kernel<float>(mhar::kernels::QkRopeSizes, int)"), StepKind::pointwise);
  EXPECT_EQ(kind_of(room + "swiglu_backward_kernel<float>(mhar::kernels::SwigluSizes)"), StepKind::pointwise);
  EXPECT_EQ(kind_of(room + "head_loss_kernel<float, 4>(mhar::kernels::HeadLossSizes)"), StepKind::loss);
  EXPECT_EQ(kind_of(room + "squares_kernel<float>(mhar::kernels::ClipArguments)"), StepKind::optimizer);
  EXPECT_EQ(kind_of(room + "whole_groups_kernel(mhar::kernels::AdamwArguments)"), StepKind::optimizer);
}

TEST(StepKinds, KernelsOfLibraries) {
  EXPECT_EQ(kind_of("nvjet_sm90_tst_128x256_64x4_1x2_h_bz_coopA_NTT"), StepKind::gemm);
  EXPECT_EQ(kind_of("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x64x64"), StepKind::gemm);
  EXPECT_EQ(kind_of("void cublasLt::splitKreduce_kernel<32, 16, int>()"), StepKind::gemm);
  EXPECT_EQ(kind_of("fmha_cutlassF_bf16_aligned_64x64_rf_sm80"), StepKind::attention);
  EXPECT_EQ(kind_of("cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3"), StepKind::attention);
  EXPECT_EQ(kind_of("void pytorch_flash::flash_fwd_kernel<int>()"), StepKind::attention);
  EXPECT_EQ(kind_of("void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<int> >()"),
            StepKind::other);
  EXPECT_EQ(kind_of("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float> >()"),
            StepKind::pointwise);
  EXPECT_EQ(kind_of("Memcpy HtoD (Pinned -> Device)"), StepKind::other);
  EXPECT_EQ(kind_of("something nobody has seen"), StepKind::other);
}

TEST(StepKinds, EachHasAName) {
  std::set<std::string> names;
  for (const StepKind kind : kStepKinds) names.insert(name_of(kind));
  EXPECT_EQ(names.size(), kStepKinds.size());
}

// In ms: a product 0 to 4, attention beside it 2 to 6, a gap, a product 8 to 10; two steps.
TEST(StepProfile, KernelsSideBySideCountOnceInBusy) {
  constexpr uint64_t ms = 1'000'000, start = 77;
  const StepProfile profile = summarize({{"nvjet_b", start + 8 * ms, start + 10 * ms},
                                         {"nvjet_a", start, start + 4 * ms},
                                         {"fmha", start + 2 * ms, start + 6 * ms}},
                                        2);
  EXPECT_TRUE(profile.missing.empty());
  EXPECT_DOUBLE_EQ(profile.of(StepKind::gemm), 3);
  EXPECT_DOUBLE_EQ(profile.of(StepKind::attention), 2);
  EXPECT_DOUBLE_EQ(profile.of(StepKind::loss), 0);
  EXPECT_DOUBLE_EQ(profile.busy, 4);
  EXPECT_DOUBLE_EQ(profile.idle, 1);
  ASSERT_EQ(profile.kernels.size(), 3u);
  EXPECT_EQ(profile.kernels.back().name, "nvjet_b");
  EXPECT_DOUBLE_EQ(profile.kernels.back().ms, 1);
  EXPECT_DOUBLE_EQ(profile.kernels.back().launches, 0.5);
}

TEST(StepProfile, ALongKernelCoversShortOnes) {
  const StepProfile profile =
      summarize({{"a", 0, 10'000'000}, {"b", 1'000'000, 2'000'000}, {"c", 12'000'000, 13'000'000}}, 1);
  EXPECT_DOUBLE_EQ(profile.busy, 11);
  EXPECT_DOUBLE_EQ(profile.idle, 2);
}

TEST(StepProfile, SaysWhyThereIsNone) {
  EXPECT_NE(summarize({}, 3).missing.find("CUPTI"), std::string::npos);
  bool ran = false;
  EXPECT_NE(profile(at::kCPU, 3, [&] { ran = true; }).missing.find("GPU"), std::string::npos);
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace mhar::bench
