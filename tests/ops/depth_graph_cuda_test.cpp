// The chunked reads inside a CUDA graph: a replay equals the eager pass bit for bit.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/depth_history.h"
#include "ops/helpers.h"
#include "ops/linear.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

struct Model {
  DepthReads reads;
  Tensor embedding;
  std::vector<Tensor> queries, gains, norms, weights;

  Model(const DepthReads& shape, int64_t tokens, at::ScalarType type) : reads(shape) {
    const auto leaf = [&](const Tensor& t) { return t.to(at::kCUDA, type).requires_grad_(); };
    embedding = leaf(normal({tokens, reads.width}, 1));
    for (int64_t r = 0; r < reads.sites; ++r) {
      queries.push_back(leaf(normal({1, reads.width}, 10 + r, at::kDouble, 0.1)));
      gains.push_back(leaf(normal({reads.width}, 100 + r, at::kDouble, 0.2).add(1)));
      norms.push_back(leaf(normal({reads.width}, 200 + r, at::kDouble, 0.2).add(1)));
      weights.push_back(leaf(normal({reads.width, reads.width}, 300 + r, at::kDouble, 0.05)));
    }
  }

  std::vector<Tensor> step() const {
    const auto type = embedding.scalar_type();
    const auto engine = depth_engine(reads, embedding.size(0), type, embedding.device());
    DepthHistory history(engine, reads, embedding.size(0), type, embedding.device());
    history.open(queries, gains, norms);
    Tensor source = embedding, read;
    for (int64_t r = 0; r < reads.sites; ++r) {
      read = history.step(source);
      if (r + 1 < reads.sites) source = linear(read, {{weights[r], {}}}, history.slot(r + 1));
    }
    std::vector<Tensor> leaves{embedding};
    for (const auto* part : {&queries, &gains, &norms}) leaves.insert(leaves.end(), part->begin(), part->end());
    std::vector<Tensor> results = torch::autograd::grad({read.to(at::kFloat).square().sum()}, leaves);
    results.push_back(read.detach());
    return results;
  }
};

TEST(DepthHistoryCuda, GraphReplayEqualsEager) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device";
  for (const auto type : {at::kBFloat16, at::kFloat}) {
    for (const auto& [sites, width, heads, tokens] :
         {std::array<int64_t, 4>{25, 512, 4, 300}, {9, 128, 2, 33}, {17, 1280, 8, 257}}) {
      SCOPED_TRACE(c10::str(type, " R ", sites, " D ", width));
      const Model model({sites, width, heads}, tokens, type);
      const auto eager = model.step();
      at::cuda::CUDAGraph graph;
      std::vector<Tensor> captured;
      {
        const c10::cuda::CUDAStreamGuard guard(at::cuda::getStreamFromPool());
        for (int warm_up = 0; warm_up < 2; ++warm_up) model.step();
        graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
        captured = model.step();
        graph.capture_end();
        for (int replay = 0; replay < 3; ++replay) graph.replay();
      }
      torch::cuda::synchronize();
      for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(at::equal(eager[i], captured[i])) << "tensor " << i;
    }
  }
}

}  // namespace
}  // namespace mhar::ops
