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
    graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
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
  // The stream stays in recording until it is told, and what it then says of the failed work is known already.
  void abandon() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      cudaGetLastError();
    }
  }

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
