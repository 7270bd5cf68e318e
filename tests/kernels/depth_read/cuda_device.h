#pragma once
#include <cuda_runtime.h>

#include "kernels/depth_read/storage.h"

namespace mhar::kernels {

/// Memory of the current CUDA device; kernels run on the default stream.
class CudaDevice : public Device {
 public:
  static bool present() {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  }
  /// Major * 10 + minor.
  static int capability() {
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    return major * 10 + minor;
  }
  void* allocate(int64_t bytes) override {
    void* memory = nullptr;
    if (cudaMalloc(&memory, bytes) != cudaSuccess) ADD_FAILURE() << "no memory for " << bytes << " bytes";
    return memory;
  }
  void release(void* memory) override { cudaFree(memory); }
  void upload(void* to, const void* from, int64_t bytes) override {
    cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void download(void* to, const void* from, int64_t bytes) override {
    cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost);
  }
  void poison(void* memory, int64_t bytes) override { cudaMemset(memory, 0xFF, bytes); }
  int finish() override { return cudaDeviceSynchronize(); }
};

}  // namespace mhar::kernels
