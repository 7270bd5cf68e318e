// A recording of a product and its gradient, written to its place.
#include "ops/device_graph.h"
#include "ops/helpers.h"
#include "ops/linear.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

TEST(DeviceGraphCuda, ReplaysWhatWasRecorded) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device on this machine";
  const at::Device device(at::kCUDA, 0);
  const Tensor weight = normal({512, 256}, 1, at::kFloat).to(device).requires_grad_();
  const Tensor place = at::empty({512, 256}, weight.options().requires_grad(false));
  const Tensor x = normal({4096, 256}, 2, at::kFloat).to(device), exact = at::ones({512, 4096}, x.options()).mm(x);
  const auto backward = [&] {
    weight.mutable_grad().reset();
    linear(x, {{weight, place}}).sum().backward();
  };
  const auto expect_gradient = [&] { EXPECT_TRUE(at::allclose(place, exact, 1e-4, 1e-2)); };
  backward();
  expect_gradient();
  const auto graph = record(device, backward);
  for (int i = 0; i < 3; ++i) {
    place.fill_(NAN);
    graph->replay();
    expect_gradient();
  }
  place.fill_(NAN);
  backward();
  expect_gradient();
}

}  // namespace
}  // namespace mhar::ops
