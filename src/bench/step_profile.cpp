#include "bench/step_profile.h"

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>

namespace mhar::bench {
namespace {

constexpr double kToMs = 1e-6;  // of nanoseconds

StepProfile nothing(std::string why) {
  StepProfile profile;
  profile.missing = std::move(why);
  return profile;
}

// Begins must rise.
double time_covered(const std::vector<DeviceSpan>& spans) {
  uint64_t covered = 0, until = 0;
  for (const DeviceSpan& span : spans) {
    const uint64_t begin = std::max(span.begin, until);
    if (span.end > begin) covered += span.end - begin;
    until = std::max(until, span.end);
  }
  return static_cast<double>(covered) * kToMs;
}

uint64_t last_end(const std::vector<DeviceSpan>& spans) {
  return std::max_element(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.end < b.end; })->end;
}

// A trace also holds the host's calls and, of the device, waits and annotations.
bool keeps_busy(const torch::autograd::profiler::KinetoEvent& event) {
  using libkineto::ActivityType;
  const auto type = static_cast<ActivityType>(event.activityType());
  return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
         type == ActivityType::GPU_MEMSET;
}

}  // namespace

StepProfile summarize(std::vector<DeviceSpan> spans, int64_t steps) {
  if (spans.empty()) return nothing("the profiler saw no kernel: CUPTI is missing, or another profiler holds it");
  const double per_step = 1.0 / static_cast<double>(steps);
  std::sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  StepProfile profile;
  profile.busy = time_covered(spans) * per_step;
  profile.idle = static_cast<double>(last_end(spans) - spans.front().begin) * kToMs * per_step - profile.busy;
  std::map<std::string, StepProfile::Kernel> kernels;
  for (const DeviceSpan& span : spans) {
    auto& kernel = kernels.try_emplace(span.name, StepProfile::Kernel{span.name, kind_of(span.name)}).first->second;
    const double ms = static_cast<double>(span.end - span.begin) * kToMs * per_step;
    kernel.ms += ms;
    kernel.launches += per_step;
    profile.by_kind[static_cast<size_t>(kernel.kind)] += ms;
  }
  for (auto& [name, kernel] : kernels) profile.kernels.push_back(std::move(kernel));
  std::sort(profile.kernels.begin(), profile.kernels.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
  return profile;
}

StepProfile profile(at::Device device, int64_t steps, const std::function<void()>& work) {
  namespace kineto = torch::autograd::profiler;
  if (!device.is_cuda()) return nothing("only a GPU's kernels are profiled");
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  const std::set<torch::profiler::impl::ActivityType> activities = {torch::profiler::impl::ActivityType::CUDA};
  kineto::prepareProfiler(config, activities);
  kineto::enableProfiler(config, activities);
  work();
  const auto result = kineto::disableProfiler();
  std::vector<DeviceSpan> spans;
  for (const auto& event : result->events()) {
    if (keeps_busy(event)) spans.push_back({event.name(), event.startNs(), event.endNs()});
  }
  return summarize(std::move(spans), steps);
}

}  // namespace mhar::bench
