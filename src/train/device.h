#pragma once
#include <ATen/ATen.h>

#include <string>

namespace mhar {

/// auto (a CUDA device when this build has kernels for it and one is there, else the CPU), cpu, cuda or cuda:N.
/// Throws InputError when the device is not there or this build has no CUDA kernels.
at::Device choose_device(const std::string& name);

/// Fixes everything that could make two runs differ: thread counts (threads 0: one per core; returns the number used),
/// deterministic library kernels, no tf32. Call once, before the first operation.
int64_t make_deterministic(int64_t threads);

at::ScalarType precision_type(const std::string& precision);  ///< bf16 or fp32
std::string precision_name(at::ScalarType type);

/// Largest number of bytes allocated on a CUDA device so far; 0 on the CPU.
int64_t peak_bytes(at::Device device);

}  // namespace mhar
