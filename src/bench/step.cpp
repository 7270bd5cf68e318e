#include "bench/step.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>

#include "ops/attention.h"
#include "train/trainer.h"

namespace mhar::bench {
namespace {

using WallClock = std::chrono::steady_clock;

double wall_ms_since(WallClock::time_point start) {
  return std::chrono::duration<double, std::milli>(WallClock::now() - start).count();
}

/// A few updates of random tokens in turn, fetched anew for each step as train/batches.h does.
BatchSource random_batches(const RunConfig& config, at::Device device) {
  constexpr int64_t updates = 4;
  const auto generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(config.seed));
  const auto options = at::TensorOptions(at::kLong).pinned_memory(device.is_cuda());
  const int64_t rows = config.microbatch, tokens = rows * config.sequence;
  std::vector<Batch> all;
  for (int64_t i = 0; i < updates * config.accumulation(); ++i) {
    const auto random = [&](at::IntArrayRef sizes) {
      return at::empty(sizes, options).random_(0, config.vocabulary, generator);
    };
    all.push_back({random({rows, config.sequence}), random({tokens}), tokens});
  }
  return [=, accumulation = config.accumulation()](int64_t index) {
    std::vector<Batch> batches;
    for (int64_t i = 0; i < accumulation; ++i) {
      const Batch& host = all[index % updates * accumulation + i];
      const auto fetch = [&](const at::Tensor& tensor) { return tensor.to(device, /*non_blocking=*/true); };
      batches.push_back({fetch(host.ids), fetch(host.targets), host.counted});
    }
    return batches;
  };
}

/// The device's allocator, where it keeps statistics.
class Memory {
 public:
  explicit Memory(at::Device device) : device_(device) { reset(); }
  void reset() const {
    if (device_.is_cuda()) at::getDeviceAllocator(at::kCUDA)->resetPeakStats(device_.index());
  }
  int64_t peak() const { return device_.is_cuda() ? stats().allocated_bytes[0].peak : 0; }
  int64_t reserved() const { return device_.is_cuda() ? stats().reserved_bytes[0].peak : 0; }

 private:
  c10::CachingDeviceAllocator::DeviceStats stats() const {
    return at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device_.index());
  }
  at::Device device_;
};

/// Moments of a device's current stream, or of the wall clock on the CPU.
class Marks {
 public:
  explicit Marks(at::Device device) : device_(device) {}

  void set() {
    if (!device_.is_cuda()) return times_.push_back(WallClock::now());
    events_.emplace_back(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
    events_.back().record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_));
  }

  /// Milliseconds between neighbours; waits for the device.
  std::vector<double> gaps() {
    std::vector<double> gaps;
    if (!events_.empty()) events_.back().synchronize();
    for (size_t i = 1; i < events_.size(); ++i) gaps.push_back(events_[i - 1].elapsedTime(events_[i]));
    for (size_t i = 1; i < times_.size(); ++i) {
      gaps.push_back(std::chrono::duration<double, std::milli>(times_[i] - times_[i - 1]).count());
    }
    return gaps;
  }

 private:
  at::Device device_;
  std::deque<c10::Event> events_;
  std::vector<WallClock::time_point> times_;
};

/// The trainer as a run drives it: results are taken when they are there.
class Driver {
 public:
  Driver(const RunConfig& config, at::Device device) : trainer(config, device, random_batches(config, device)) {}

  void step() {
    trainer.launch();
    take(/*wait=*/false);
  }
  void settle() { take(/*wait=*/true); }

  Trainer trainer;
  std::vector<double> losses;

 private:
  void take(bool wait) {
    while (const auto result = trainer.result(wait)) losses.push_back(result->loss);
  }
};

void describe(const Driver& driver, const StepRequest& request, StepTimes& times) {
  const Decoder& model = driver.trainer.model();
  const ModelConfig& c = model.config();
  const at::ScalarType type = model.parameters().type();
  const int64_t tokens = request.config.microbatch * request.config.sequence;
  times.parameters = model.parameters().count();
  times.read_flops = model.design().read_flops(tokens) * request.config.accumulation();
  times.routing_heads = model.design().heads();
  times.reads = model.design().reads(tokens, type, request.device);
  times.attention =
      ops::attention_kernel(request.device, type, c.heads, c.kv_heads, c.head_dim, request.config.sequence);
}

}  // namespace

StepTimes time_steps(const StepRequest& request) {
  StepTimes times;
  const Memory memory(request.device);
  Driver driver(request.config, request.device);
  describe(driver, request, times);
  for (int64_t i = 0; i < request.effort.warm_up; ++i) driver.step();
  driver.settle();
  times.memory = {.peak = memory.peak(), .reserved = memory.reserved()};
  memory.reset();
  Marks marks(request.device);
  const auto start = WallClock::now();
  for (int64_t i = 0; i < request.effort.repeat; ++i) {
    marks.set();
    driver.step();
  }
  marks.set();
  driver.settle();
  times.wall_ms = wall_ms_since(start) / static_cast<double>(request.effort.repeat);
  times.ms = spread_of(marks.gaps());
  times.memory.steps_peak = memory.peak();
  times.memory.peak = std::max(times.memory.peak, times.memory.steps_peak);
  times.memory.reserved = std::max(times.memory.reserved, memory.reserved());
  times.first_loss = driver.losses.front();
  times.last_loss = driver.losses.back();
  times.replayed = driver.trainer.replays();
  return times;
}

StepProfile profile_steps(const StepRequest& request) {
  constexpr int64_t profiled = 3;
  Driver driver(request.config, request.device);
  for (int64_t i = 0; i < request.effort.warm_up; ++i) driver.step();
  driver.settle();
  return profile(request.device, profiled, [&] {
    for (int64_t i = 0; i < profiled; ++i) driver.step();
    driver.settle();
  });
}

}  // namespace mhar::bench
