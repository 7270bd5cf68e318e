#include "train/device.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <torch/cuda.h>
#include <torch/torch.h>

#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "ops/device.h"

namespace mhar {

at::Device choose_device(const std::string& name) {
  const bool kernels = ops::built_with_cuda(), there = kernels && torch::cuda::is_available();
  if (name == "cpu") return at::kCPU;
  if (name == "auto") return there ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  if (name == "cuda" || name.starts_with("cuda:")) {
    if (!kernels) {
      throw InputError({"choose the device", "option --device", "a build with CUDA kernels", "a build without",
                        "put nvcc on PATH and build again, or use --device cpu"});
    }
    const int64_t count = there ? static_cast<int64_t>(torch::cuda::device_count()) : 0;
    const std::string number = name == "cuda" ? "0" : name.substr(5);
    const bool digits =
        !number.empty() && number.size() < 4 && number.find_first_not_of("0123456789") == std::string::npos;
    if (digits && std::stoll(number) < count) return {at::kCUDA, static_cast<c10::DeviceIndex>(std::stoi(number))};
    throw InputError({"choose the device", "option --device",
                      "a CUDA device that is there (found " + std::to_string(count) + ")", "'" + name + "'",
                      "use --device cpu, or check the driver with nvidia-smi"});
  }
  throw InputError(
      {"choose the device", "option --device", "auto, cpu, cuda or cuda:N", "'" + name + "'", "choose one of these"});
}

int64_t make_deterministic(int64_t threads) {
  if (threads == 0) threads = std::max<int64_t>(1, std::thread::hardware_concurrency());
  at::set_num_threads(static_cast<int>(threads));
  // cuBLAS reads its workspace size here; with several workspaces its sums may differ from run to run.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // The same switch would fill every new buffer with NaN; ours are all written before they are read.
  context.setDeterministicFillUninitializedMemory(false);
  context.setBenchmarkCuDNN(false);
  context.setAllowTF32CuBLAS(false);
  return threads;
}

at::ScalarType precision_type(const std::string& precision) { return precision == "bf16" ? at::kBFloat16 : at::kFloat; }

std::string precision_name(at::ScalarType type) { return type == at::kBFloat16 ? "bf16" : "fp32"; }

int64_t peak_bytes(at::Device device) {
  if (!device.is_cuda()) return 0;
  const auto stats = at::getDeviceAllocator(at::kCUDA)->getDeviceStats(device.index());
  return stats.allocated_bytes[0].peak;
}

}  // namespace mhar
