#pragma once
#include <ATen/ATen.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "bench/step_kinds.h"

namespace mhar::bench {

/// Where the time of a step goes, in milliseconds per step. Kernels that run beside one another count in full under
/// their kinds, once in `busy`. Tracing lengthens the gaps between kernels, so `idle` is an upper bound.
struct StepProfile {
  struct Kernel {
    std::string name;  ///< demangled
    StepKind kind;
    double ms = 0, launches = 0;
  };

  std::array<double, kStepKinds.size()> by_kind{};  ///< in the order of kStepKinds
  double busy = 0, idle = 0;                        ///< with and without a kernel, copy or fill running
  std::vector<Kernel> kernels;                      ///< the longest first
  std::string missing;                              ///< why there is nothing above; empty where there is

  double of(StepKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
};

/// A kernel, copy or fill as the trace has it.
struct DeviceSpan {
  std::string name;
  uint64_t begin, end;  ///< ns
};

/// Sums up the spans of `steps` steps.
StepProfile summarize(std::vector<DeviceSpan> spans, int64_t steps);

/// Runs `work`, which makes `steps` steps and waits for them, under LibTorch's profiler (Kineto).
StepProfile profile(at::Device device, int64_t steps, const std::function<void()>& work);

}  // namespace mhar::bench
