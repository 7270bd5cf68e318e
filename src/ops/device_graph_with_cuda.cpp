#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include "ops/device_graph.h"

namespace mhar::ops {
namespace {

class Recorded : public DeviceGraph {
 public:
  void record(const std::function<void()>& work) {
    // The recording gets memory of its own, so what earlier work left in the cache would only be held twice.
    c10::cuda::device_synchronize();
    c10::cuda::CUDACachingAllocator::emptyCache();
    // The default stream cannot be recorded. Kernels keep their stream's priority: what the work puts on other streams
    // is there to fill gaps.
    const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
    // Only of this thread and those it starts work on: another may allocate memory meanwhile.
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      abandon();
      throw;
    }
    graph_.capture_end();
  }

  void replay() override { graph_.replay(); }

 private:
  // The stream stays in recording until it is told. It may call the recording void, as where the work left a stream
  // beside it open; the allocators then do not learn of the end, and would go on filling the recording's pool.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      cudaGetLastError();
      const auto device = c10::cuda::current_device();
      c10::cuda::CUDACachingAllocator::endAllocateToPool(device, pool_);
      c10::cuda::CUDACachingAllocator::releasePool(device, pool_);
      at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(pool_);
      at::getHostAllocator(at::kCUDA)->release_pool(pool_);
    }
  }

  const at::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> record(at::Device device, const std::function<void()>& work) {
  const c10::cuda::CUDAGuard guard(device);
  auto graph = std::make_unique<Recorded>();
  graph->record(work);
  return graph;
}

}  // namespace mhar::ops
