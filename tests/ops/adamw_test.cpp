#include "ops/adamw.h"

#include "kernels/adamw_state.h"
#include "ops/helpers.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using kernels::AdamwCase;
using kernels::AdamwState;
using namespace mhar::testing;

constexpr int64_t kCount = 100'003;  // several tasks of the op, the last one short

Tensor tensor_of(const kernels::Buffer& buffer) {
  const auto type = buffer.type == kernels::Element::f32 ? at::kFloat : at::kBFloat16;
  return at::from_blob(const_cast<unsigned char*>(buffer.bytes.data()),
                       static_cast<int64_t>(buffer.bytes.size()) / kernels::bytes_of(buffer.type), type)
      .clone();
}

AdamWBuffers buffers_of(AdamwState& state, at::Device device, int64_t update = 1) {
  AdamWBuffers b{tensor_of(state.parameter).to(device),
                 tensor_of(state.gradient).to(device),
                 0,
                 tensor_of(state.moment1).to(device),
                 tensor_of(state.moment2).to(device),
                 {},
                 make_adamw_step(device),
                 {}};
  set_adamw_step(b.step, *state.arguments(update).step);
  b.clip = at::from_blob(&state.clip, {static_cast<int64_t>(sizeof state.clip)}, at::kByte).clone().to(device);
  if (state.kind.master) b.master = tensor_of(state.master).to(device);
  return b;
}

bool same_bits(const Tensor& tensor, const kernels::Buffer& buffer) {
  const Tensor plain = tensor.cpu().contiguous();
  return plain.nbytes() == buffer.bytes.size() &&
         std::memcmp(plain.const_data_ptr(), buffer.bytes.data(), plain.nbytes()) == 0;
}

TEST(AdamwOp, GivesTheKernelsBitsWithAnyNumberOfThreads) {
  for (const at::Device device : devices()) {
    for (const int threads : {1, 2}) {
      at::set_num_threads(threads);
      for (const AdamwCase& kind : kernels::adamw_cases()) {
        SCOPED_TRACE(kind.name() + " " + device.str() + ", threads " + std::to_string(threads));
        AdamwState state = AdamwState::random(kind, kCount);
        const AdamWBuffers b = buffers_of(state, device, 3);
        adamw(b, state.arguments(3));
        kernels::adamw_cpu({0, kCount}, state.arguments(3));
        EXPECT_TRUE(same_bits(b.parameter, state.parameter));
        EXPECT_TRUE(same_bits(b.moment1, state.moment1) && same_bits(b.moment2, state.moment2));
        if (kind.master) {
          EXPECT_TRUE(same_bits(b.master, state.master));
        }
      }
    }
  }
  at::set_num_threads(1);
}

TEST(AdamwOp, PiecesOfTheGradientGiveTheSameBits) {
  for (const at::Device device : devices()) {
    for (const AdamwCase& kind : kernels::adamw_cases()) {
      AdamwState state = AdamwState::random(kind, kCount);
      const AdamWBuffers whole = buffers_of(state, device), cut = buffers_of(state, device);
      adamw(whole, state.arguments(1));
      for (const auto& [from, to] : {std::pair<int64_t, int64_t>{96, 50'000}, {0, 96}, {50'000, kCount}}) {
        AdamWBuffers piece = cut;
        piece.gradient = cut.gradient.slice(0, from, to).clone();
        piece.gradient_from = from;
        adamw(piece, state.arguments(1));
      }
      EXPECT_TRUE(at::equal(cut.parameter, whole.parameter)) << kind.name() << device;
      EXPECT_TRUE(at::equal(cut.moment1, whole.moment1) && at::equal(cut.moment2, whole.moment2));
    }
  }
}

// Case 28.
TEST(AdamwOp, NothingToUpdateIsFine) {
  AdamwState state = AdamwState::random(kernels::adamw_cases().front(), 0);
  adamw(buffers_of(state, at::kCPU), state.arguments(1));
}

TEST(AdamwOp, WrongBuffersAreRefused) {
  AdamwState state = AdamwState::random(kernels::adamw_cases().front(), 8);
  const auto refusal = [&](const std::function<void(AdamWBuffers&)>& spoil) {
    AdamWBuffers b = buffers_of(state, at::kCPU);
    spoil(b);
    return message_of<std::invalid_argument>([&] { adamw(b, state.arguments(1)); });
  };
  const auto expect = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal([](auto& b) { b.gradient = at::zeros({9}); }), "gradient");
  expect(refusal([](auto& b) { b.gradient_from = 8; }), "gradient");
  expect(refusal([](auto& b) { b.moment2 = at::zeros({2, 4}); }), "moment2");
  expect(refusal([](auto& b) { b.master = at::zeros({9}); }), "[9]");
  expect(refusal([](auto& b) { b.gradient = at::zeros({16}).slice(0, 0, 16, 2); }), "contiguous");
  expect(refusal([](auto& b) { b.moment1 = b.moment1.to(at::kBFloat16); }), "one type");
  expect(refusal([](auto& b) { b.parameter = b.parameter.to(at::kDouble); }), "Double");
  expect(refusal([](auto& b) { b.step = Tensor(); }), "make_adamw_step");
  expect(refusal([](auto& b) { b.clip = at::zeros({1}, at::kByte); }), "make_clip_report");
}

}  // namespace
}  // namespace mhar::ops
