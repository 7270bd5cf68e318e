#include "ops/depth_engine.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/error.h"
#include "kernels/cuda_status.h"
#include "ops/pointwise.h"

namespace mhar::ops {
namespace {

kernels::Element source_element(at::ScalarType type) {
  const kernels::Element element = element_of(type);
  if (element != kernels::Element::f64 || type == at::kDouble) return element;
  throw std::invalid_argument(
      describe({"depth reads", "sources", "fp32, bf16, fp16 or fp64", c10::toString(type), "convert them"}));
}

void run_on_threads(void*, int64_t items, void (*body)(void*, int64_t, int64_t), void* context) {
  at::parallel_for(0, items, 1, [&](int64_t begin, int64_t end) { body(context, begin, end); });
}

}  // namespace

std::string DepthEngine::name() const {
  if (!kernels) return "composed (" + passed_over + ")";
  return std::string("chunked (") + kernels->name + (passed_over.empty() ? "" : "; " + passed_over) + ")";
}

kernels::DepthSizes depth_sizes(const DepthReads& reads, int64_t tokens, at::ScalarType type) {
  return {tokens, reads.width, reads.heads, source_element(type), reads.eps};
}

DepthEngine depth_engine(const DepthReads& reads, int64_t tokens, at::ScalarType type, at::Device device) {
  const kernels::DepthSizes sizes = depth_sizes(reads, tokens, type);
  std::vector<const kernels::DepthKernels*> candidates;
  if (device.is_cpu()) candidates = {&kernels::depth_kernels_cpu()};
  if (device.is_cuda()) candidates = {&kernels::depth_kernels_hopper(), &kernels::depth_kernels_cuda()};
  DepthEngine engine;
  if (candidates.empty()) engine.passed_over = "no kernels for " + device.str();
  for (const auto* candidate : candidates) {
    const char* reason = candidate->refuses(sizes, reads.sites);
    if (!reason) {
      engine.kernels = candidate;
      break;
    }
    if (!engine.passed_over.empty()) engine.passed_over += "; ";
    engine.passed_over += std::string(candidate->name) + " takes no " + reason;
  }
  return engine;
}

kernels::DepthPlan depth_plan(const DepthEngine& engine, const DepthReads& reads, int64_t sites, int64_t tokens,
                              at::ScalarType type) {
  const bool cpu = engine.kernels == &kernels::depth_kernels_cpu();
  return kernels::plan_depth(*engine.kernels, depth_sizes(reads, tokens, type), sites,
                             cpu ? kernels::DepthCosts{} : kernels::kGpuDepthCosts, reads.chunk);
}

void* depth_queue(at::Device device) {
  if (device.is_cuda()) return c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device).native_handle();
  static kernels::ParallelFor threads{nullptr, run_on_threads};
  return &threads;
}

void require_launched(const char* pass, int status) {
  if (status == 0) return;
  throw std::runtime_error(std::string(pass) + ": the CUDA kernel failed: " + kernels::cuda_error_text(status));
}

}  // namespace mhar::ops
