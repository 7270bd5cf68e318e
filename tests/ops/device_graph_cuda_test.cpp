// What happens to a recording whose work fails: the failure comes out, and the device is as before.
#include <c10/cuda/CUDACachingAllocator.h>

#include "ops/device_graph.h"
#include "ops/helpers.h"
#include "ops/linear.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using namespace mhar::testing;

struct Fails : torch::autograd::Function<Fails> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    throw std::runtime_error("this backward pass fails");
  }
};

// A product whose gradient is written to its place.
struct Product {
  const at::Device device{at::kCUDA, 0};
  const Tensor weight = normal({512, 256}, 1, at::kFloat).to(device).requires_grad_();
  const Tensor place = at::empty({512, 256}, weight.options().requires_grad(false));
  const Tensor x = normal({4096, 256}, 2, at::kFloat).to(device);

  Tensor run(bool fails) const {
    weight.mutable_grad().reset();
    const Tensor input = fails ? Fails::apply(x.detach().requires_grad_()) : x;
    return linear(input, {{weight, place}}).sum();
  }
  // Read on the current stream right behind the backward call.
  void expect_gradient() const {
    place.fill_(NAN);
    run(false).backward();
    const Tensor read = place.clone(), exact = at::ones({512, 4096}, x.options()).mm(x);
    EXPECT_TRUE(at::allclose(read, exact, 1e-4, 1e-2));
  }
};

class DeviceGraphCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "no CUDA device on this machine";
  }
};

TEST_F(DeviceGraphCuda, ReplaysWhatWasRecorded) {
  const Product product;
  product.expect_gradient();
  const auto graph = record(product.device, [&] { product.run(false).backward(); });
  for (int i = 0; i < 3; ++i) {
    product.place.fill_(NAN);
    graph->replay();
    EXPECT_FALSE(product.place.isnan().any().item<bool>());
  }
  product.expect_gradient();
}

TEST_F(DeviceGraphCuda, FailedWorkLeavesTheDeviceAsItWas) {
  const Product product;
  product.expect_gradient();
  const auto failing = [&](const std::function<void()>& work) { EXPECT_ANY_THROW(record(product.device, work)); };
  failing([&] { product.run(true).backward(); });
  product.expect_gradient();
  c10::cuda::CUDACachingAllocator::emptyCache();
  failing([&] { product.x.sum().item<float>(); });
  product.expect_gradient();
  c10::cuda::CUDACachingAllocator::emptyCache();
  failing([] { throw std::runtime_error("at once"); });
  const auto graph = record(product.device, [&] { product.run(false).backward(); });
  graph->replay();
  EXPECT_FALSE(product.place.isnan().any().item<bool>());
}

TEST_F(DeviceGraphCuda, AFailedBackwardPassDoesNotSpoilTheNext) {
  const Product product;
  for (int i = 0; i < 3; ++i) {
    EXPECT_ANY_THROW(product.run(true).backward());
    product.expect_gradient();
  }
}

}  // namespace
}  // namespace mhar::ops
