#pragma once
#include <ATen/ATen.h>
#include <c10/core/Event.h>

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

namespace mhar::bench {

struct Spread {
  double median = 0, least = 0, most = 0;
};
Spread spread_of(std::vector<double> values);

/// Milliseconds on a device: between two events of its current stream on a GPU, of the wall clock on the CPU.
class Clock {
 public:
  explicit Clock(at::Device device);
  void start();
  double stop();  ///< waits for the device

 private:
  at::Device device_;
  std::optional<c10::Event> begin_, end_;
  std::chrono::steady_clock::time_point wall_;
};

/// Writes a buffer several times as large as any L2 cache, so that nothing read before is still in it.
class Sweep {
 public:
  static constexpr int64_t kBytes = 256 << 20;
  explicit Sweep(at::Device device);
  void run() { buffer_.fill_(1.0f); }

 private:
  at::Tensor buffer_;
};

/// What is timed: forward steps 0 .. steps()-1, then backward steps from the last down to 0.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual int64_t steps() const = 0;
  virtual void restore() = 0;  ///< undoes what a backward pass spoiled; not timed
  virtual void forward(int64_t step) = 0;
  virtual void backward(int64_t step) = 0;
};

struct Passes {
  Spread forward, backward, total;  ///< ms
};

struct Effort {
  int64_t warm_up, repeat;
};

/// With a sweep before each step its time is taken off again: that of as many sweeps and nothing else, measured here.
/// Without one (null), work is queued ahead of the clock on a GPU, so that launching is not what is timed.
Passes measure(Subject& subject, at::Device device, Sweep* sweep, const Effort& effort);

/// Bytes read and written per second by copies between two buffers of the device, median of ten.
double copy_bandwidth(at::Device device);

/// Gives cached device memory back.
void release_memory(at::Device device);

}  // namespace mhar::bench
