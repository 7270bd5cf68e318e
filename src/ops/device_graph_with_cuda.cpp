#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
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
    // The recording gets memory of its own, so what earlier work left in caches would only be held twice: cuBLAS keeps
    // a workspace for every stream it has seen.
    c10::cuda::device_synchronize();
    at::cuda::clearCublasWorkspaces();
    c10::cuda::CUDACachingAllocator::emptyCache();
    const c10::cuda::CUDAStreamGuard aside(c10::cuda::getStreamFromPool());  // the default stream cannot be recorded
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
  // The stream stays in recording until it is told. It may call the recording void, as where the work waited for the
  // device; the allocators then do not learn of the end, and would go on filling the recording's pool.
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
