#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "kernels/adamw/adamw.h"
#include "kernels/adamw_state.h"
#include "kernels/cuda_status.h"

namespace mhar::kernels {
namespace {

/// A copy of a buffer on the device, `shift` elements behind an aligned address.
class OnDevice {
 public:
  OnDevice(Buffer& host, int64_t shift) : host_(host), shift_(shift * bytes_of(host.type)) {
    cudaMalloc(&base_, host.bytes.size() + shift_ + 1);
    cudaMemcpy(data(), host.bytes.data(), host.bytes.size(), cudaMemcpyHostToDevice);
  }
  ~OnDevice() { cudaFree(base_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void* data() const { return static_cast<char*>(base_) + shift_; }
  void fetch() { cudaMemcpy(host_.bytes.data(), data(), host_.bytes.size(), cudaMemcpyDeviceToHost); }

 private:
  Buffer& host_;
  int64_t shift_;
  void* base_ = nullptr;
};

template <typename T>
struct Small {
  T* memory = nullptr;
  explicit Small(const T& value) {
    cudaMalloc(&memory, sizeof value);
    cudaMemcpy(memory, &value, sizeof value, cudaMemcpyHostToDevice);
  }
  ~Small() { cudaFree(memory); }
  Small(const Small&) = delete;
  Small& operator=(const Small&) = delete;
};

void update_on_device(AdamwState& state, const AdamwSizes& sizes, AdamwArguments arguments, int64_t shift) {
  OnDevice parameter(state.parameter, shift), gradient(state.gradient, shift), moment1(state.moment1, shift),
      moment2(state.moment2, shift), master(state.master, shift);
  arguments.parameter = parameter.data(), arguments.gradient = gradient.data();
  arguments.moment1 = moment1.data(), arguments.moment2 = moment2.data();
  if (arguments.master) arguments.master = static_cast<float*>(master.data());
  Small<AdamwStep> step(*arguments.step);
  Small<Clip> clip(*arguments.clip);
  arguments.step = step.memory, arguments.clip = clip.memory;
  const int code = adamw_cuda(sizes, arguments, nullptr);
  ASSERT_EQ(code, 0) << cuda_error_text(code);
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  for (OnDevice* buffer : {&parameter, &moment1, &moment2, &master}) buffer->fetch();
}

TEST(AdamwCuda, SameBitsAsTheCpu) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device on this machine";
  constexpr int64_t count = 100'003;
  for (const AdamwCase& kind : adamw_cases()) {
    for (const int64_t shift : {0, 1}) {  // aligned: 16 bytes per access; shifted: one by one
      for (const AdamwSizes sizes :
           {AdamwSizes{0, count}, AdamwSizes{7, count - 9}, AdamwSizes{5, 2}, AdamwSizes{0, 0}}) {
        SCOPED_TRACE(kind.name() + ", shift " + std::to_string(shift) + ", from " + std::to_string(sizes.begin));
        AdamwState cpu = AdamwState::random(kind, count), cuda = cpu;
        for (const int64_t update : {1, 2, 50}) {
          adamw_cpu(sizes, cpu.arguments(update));
          update_on_device(cuda, sizes, cuda.arguments(update), shift);
        }
        EXPECT_TRUE(cpu == cuda);
      }
    }
  }
}

TEST(AdamwCuda, SameBitsForNumbersOfEverySize) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device on this machine";
  constexpr int64_t count = 1'000'000;
  for (const AdamwCase& kind : adamw_cases()) {
    AdamwState cpu = AdamwState::of_every_size(kind, count), cuda = cpu;
    for (const int64_t update : {1, 7}) {
      adamw_cpu({0, count}, cpu.arguments(update));
      update_on_device(cuda, {0, count}, cuda.arguments(update), 0);
      EXPECT_TRUE(cpu == cuda) << kind.name() << ", update " << update;
    }
  }
}

TEST(AdamwCuda, NothingIsWrittenOnceStopped) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) GTEST_SKIP() << "no CUDA device on this machine";
  for (const AdamwCase& kind : adamw_cases()) {
    AdamwState state = AdamwState::random(kind, 1003);
    const AdamwState before = state;
    state.clip.stopped = 1;
    update_on_device(state, {0, 1003}, state.arguments(2), 0);
    EXPECT_TRUE(state == before) << kind.name();
  }
}

}  // namespace
}  // namespace mhar::kernels
