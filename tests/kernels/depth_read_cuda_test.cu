// The cases of the depth read on a GPU, for the general kernels and for those of compute capability 9.0.
#include "kernels/depth_read/cuda_device.h"
#include "kernels/depth_read/gated.h"
#include "kernels/depth_read/large.h"
#include "kernels/depth_read/laws.h"

namespace mhar::kernels {
namespace {

struct Implementation {
  const DepthKernels* kernels;
  std::vector<Element> types;
  int least_capability;
  std::vector<int64_t> widths;  ///< of the table of pairs
  double most;                  ///< N * N * P * D of its rows: enough for the longest lists at the least width
};

class DepthReadCuda : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (!CudaDevice::present()) GTEST_SKIP() << "no CUDA device on this machine";
    if (CudaDevice::capability() < GetParam().least_capability) GTEST_SKIP() << "these kernels need another GPU";
  }
  Subject subject() { return {*GetParam().kernels, device_, GetParam().types}; }
  template <typename Law>
  void each_type(const Law& law) {
    for (const Element type : GetParam().types) law({*GetParam().kernels, device_, {type}}, type);
  }
  bool takes(const DepthSizes& sizes, int64_t sites) { return subject().takes(sizes, sites); }

  CudaDevice device_;
};

TEST_P(DepthReadCuda, EveryPairOfSizes) { expect_pairs(subject(), GetParam().widths, GetParam().most, 80); }
TEST_P(DepthReadCuda, ProductOfShortLists) { expect_product(subject()); }
TEST_P(DepthReadCuda, EveryNumberOfSources) { expect_every_number_of_sources(subject(), {1, 2}); }
TEST_P(DepthReadCuda, ManyRowsOfTokens) {
  const DepthSizes sizes{4095, 512, 8, Element::bf16, 1e-6};
  if (takes(sizes, 9)) expect_reference(subject(), sizes, 9, {9, true, 2, 9}, 5, 4);
}
TEST_P(DepthReadCuda, AnyPlan) { expect_any_plan(subject()); }
TEST_P(DepthReadCuda, PlainMean) { expect_plain_mean(subject()); }
TEST_P(DepthReadCuda, WideSums) { expect_wide_sums(subject()); }
TEST_P(DepthReadCuda, FirstSiteIsExact) { expect_first_site_exact(subject()); }
TEST_P(DepthReadCuda, ExactKeys) { expect_exact_keys(subject()); }
TEST_P(DepthReadCuda, Finite) { expect_finite(subject()); }
TEST_P(DepthReadCuda, ManyTokens) { expect_many_tokens(subject(), 70'000, 64, 3); }
TEST_P(DepthReadCuda, SameBitsAgain) {
  for (const Element type : GetParam().types) {
    for (const DepthSizes sizes : {DepthSizes{1000, 512, 4, type, 1e-6}, DepthSizes{333, 1280, 8, type, 1e-6}})
      if (takes(sizes, 25)) expect_same_bits(subject(), sizes, 25, 200);
  }
}
TEST_P(DepthReadCuda, Beyond32Bits) {
  const DepthSizes sizes{24'576, 1280, 8, Element::bf16, 1e-6};
  if (takes(sizes, 73)) expect_large(subject(), sizes, 73, 8);
}
TEST_P(DepthReadCuda, AccurateTokenSums) {
  const DepthSizes sizes{4096, 64, 4, Element::f32, 1e-6};
  if (takes(sizes, 5)) expect_accurate_token_sums(subject(), sizes, 5);
}
TEST_P(DepthReadCuda, BlockSums) { each_type(expect_block_sums); }
TEST_P(DepthReadCuda, NullAndGatedStream) { each_type(expect_gated_read); }
TEST_P(DepthReadCuda, ClosedGate) { each_type(expect_closed_gate); }
TEST_P(DepthReadCuda, NullAlone) { each_type(expect_null_alone); }
TEST_P(DepthReadCuda, SeveralQueriesOfASite) { each_type(expect_query_rows); }

INSTANTIATE_TEST_SUITE_P(General, DepthReadCuda,
                         ::testing::Values(Implementation{&depth_kernels_cuda(),
                                                          {Element::f32, Element::bf16, Element::f16},
                                                          80,
                                                          {8, 40, 123, 512, 1000, 1280, 4096},
                                                          7e7}));
INSTANTIATE_TEST_SUITE_P(Hopper, DepthReadCuda,
                         ::testing::Values(Implementation{
                             &depth_kernels_hopper(), {Element::bf16}, 90, {64, 512, 768, 1024, 1280, 2560}, 3.3e8}));

}  // namespace
}  // namespace mhar::kernels
