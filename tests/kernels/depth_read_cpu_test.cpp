#include "kernels/depth_read/gated.h"
#include "kernels/depth_read/laws.h"

namespace mhar::kernels {
namespace {

const std::vector<Element> kNarrow{Element::f32, Element::bf16, Element::f16};
const std::vector<Element> kAll{Element::f32, Element::bf16, Element::f16, Element::f64};

CpuDevice device;
Subject cpu(const std::vector<Element>& types) { return {depth_kernels_cpu(), device, types}; }

TEST(DepthReadCpu, EveryPairOfSizes) { expect_pairs(cpu(kNarrow), {8, 40, 123, 512, 1000, 1280, 4096}, 7e7, 250); }
TEST(DepthReadCpu, ProductOfShortLists) { expect_product(cpu(kAll)); }
TEST(DepthReadCpu, WidestRows) { expect_reference(cpu(kNarrow), {2, 8192, 16, Element::bf16, 1e-6}, 9, {9}, 4, 4); }
TEST(DepthReadCpu, EveryNumberOfSources) { expect_every_number_of_sources(cpu({Element::bf16}), {1, 2}); }
TEST(DepthReadCpu, AnyPlan) { expect_any_plan(cpu(kAll)); }
TEST(DepthReadCpu, PlainMean) { expect_plain_mean(cpu(kAll)); }
TEST(DepthReadCpu, WideSums) { expect_wide_sums(cpu(kAll)); }
TEST(DepthReadCpu, FirstSiteIsExact) { expect_first_site_exact(cpu(kAll)); }
TEST(DepthReadCpu, ExactKeys) { expect_exact_keys(cpu(kAll)); }
TEST(DepthReadCpu, Finite) { expect_finite(cpu(kAll)); }
TEST(DepthReadCpu, ManyTokens) { expect_many_tokens(cpu(kAll), 70'000, 8, 3); }
TEST(DepthReadCpu, AccurateTokenSums) { expect_accurate_token_sums(cpu(kAll), {4096, 64, 4, Element::f32, 1e-6}, 5); }
TEST(DepthReadCpu, SameBitsAgain) { expect_same_bits(cpu(kAll), {300, 64, 4, Element::f32, 1e-6}, 9, 20); }

// Runs the parts in pieces and out of order, as threads may.
struct Shuffled {
  int64_t pieces;
  static void run(void* self, int64_t items, void (*body)(void* context, int64_t begin, int64_t end), void* context) {
    const int64_t pieces = std::min(static_cast<Shuffled*>(self)->pieces, items);
    for (int64_t i = pieces - 1; i >= 0; --i) body(context, i * items / pieces, (i + 1) * items / pieces);
  }
};

TEST(DepthReadCpu, SameBitsForAnyNumberOfThreads) {
  for (const Element type : kAll) {
    const Problem problem = draw_problem({300, 96, 4, type, 1e-6}, 11, {11, true, 3, 5});
    const Outcome serial = cpu(kAll).run(problem, 5, 4);
    for (const int64_t pieces : {1, 2, 7, 1000}) {
      Shuffled shuffled{pieces};
      ParallelFor parallel{&shuffled, &Shuffled::run};
      CpuDevice threaded;
      threaded.queue = &parallel;
      EXPECT_TRUE(Subject({depth_kernels_cpu(), threaded, kAll}).run(problem, 5, 4) == serial) << name_of(type);
    }
  }
}

template <typename Law>
void each_type(const Law& law) {
  for (const Element type : kAll) law(cpu({type}), type);
}
TEST(DepthReadCpu, BlockSums) { each_type(expect_block_sums); }
TEST(DepthReadCpu, NullAndGatedStream) { each_type(expect_gated_read); }
TEST(DepthReadCpu, ClosedGate) { each_type(expect_closed_gate); }
TEST(DepthReadCpu, NullAlone) { each_type(expect_null_alone); }
TEST(DepthReadCpu, SeveralQueriesOfASite) { each_type(expect_query_rows); }

}  // namespace
}  // namespace mhar::kernels
