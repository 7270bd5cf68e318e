#include "bench/timing.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

namespace mhar::bench {
namespace {

// A site is launched in well under the 60 us of a sweep; a quarter of a sweep a site keeps the queue filled.
void queue_ahead(Sweep& sweep, int64_t steps) {
  for (int64_t i = 0; i < steps / 4 + 4; ++i) sweep.run();
}

double sweeps_alone(Clock& clock, Sweep& sweep, int64_t steps, int64_t repeat) {
  std::vector<double> times;
  for (int64_t i = 0; i < repeat; ++i) {
    sweep.run();
    clock.start();
    for (int64_t step = 0; step < steps; ++step) sweep.run();
    times.push_back(clock.stop());
  }
  return spread_of(times).median;
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median = values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

Clock::Clock(at::Device device) : device_(device) {
  if (!device.is_cuda()) return;
  begin_.emplace(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
  end_.emplace(at::kCUDA, c10::EventFlag::BACKEND_DEFAULT);
}

void Clock::start() {
  if (begin_) {
    begin_->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_));
  } else {
    wall_ = std::chrono::steady_clock::now();
  }
}

double Clock::stop() {
  if (!end_) return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - wall_).count();
  end_->record(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_));
  end_->synchronize();
  return begin_->elapsedTime(*end_);
}

Sweep::Sweep(at::Device device)
    : buffer_(at::empty({kBytes / 4}, at::TensorOptions().dtype(at::kFloat).device(device))) {}

Passes measure(Subject& subject, at::Device device, Sweep* sweep, const Effort& effort) {
  const int64_t steps = subject.steps();
  Clock clock(device);
  std::optional<Sweep> ahead;
  if (!sweep && device.is_cuda()) ahead.emplace(device);
  const double swept = sweep ? sweeps_alone(clock, *sweep, steps, effort.repeat) : 0.0;
  const auto timed = [&](const std::function<void(int64_t)>& step) {
    if (ahead) queue_ahead(*ahead, steps);
    if (sweep) sweep->run();
    clock.start();
    for (int64_t i = 0; i < steps; ++i) {
      if (sweep) sweep->run();
      step(i);
    }
    return clock.stop() - swept;
  };
  std::vector<double> forward, backward, total;
  for (int64_t i = -effort.warm_up; i < effort.repeat; ++i) {
    subject.restore();
    const double there = timed([&](int64_t step) { subject.forward(step); });
    const double back = timed([&](int64_t step) { subject.backward(steps - 1 - step); });
    if (i < 0) continue;
    forward.push_back(there);
    backward.push_back(back);
    total.push_back(there + back);
  }
  return {spread_of(forward), spread_of(backward), spread_of(total)};
}

double copy_bandwidth(at::Device device) {
  const int64_t bytes = device.is_cuda() ? int64_t{1} << 30 : int64_t{1} << 27;
  const auto options = at::TensorOptions().dtype(at::kByte).device(device);
  const at::Tensor from = at::zeros({bytes}, options), to = at::zeros({bytes}, options);
  Clock clock(device);
  std::vector<double> times;
  for (int i = -2; i < 10; ++i) {
    if (device.is_cuda()) to.copy_(from);  // keeps the device busy until the copy that is timed has been launched
    clock.start();
    to.copy_(from);
    const double ms = clock.stop();
    if (i >= 0) times.push_back(ms);
  }
  return 2.0 * static_cast<double>(bytes) / (spread_of(times).median * 1e-3);
}

void release_memory(at::Device device) {
  if (device.is_cuda()) at::getDeviceAllocator(at::kCUDA)->emptyCache();
}

}  // namespace mhar::bench
