#pragma once
#include <ATen/ATen.h>

#include <functional>
#include <memory>

namespace mhar::ops {

/// Work of a GPU that is recorded once and then launched as a whole (a CUDA graph). It reads and writes the memory that
/// the recording saw; what the work allocates for itself stays reserved as long as the graph lives.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  /// Queues the recorded work on the current stream.
  virtual void replay() = 0;
};

/// Runs `work` on the host once; what it queues on `device` is recorded and not done. Work that waits for the device or
/// reads from it cannot be recorded: c10::Error or std::runtime_error, and whatever else `work` throws. The
/// device is then as before. Without CUDA in this build: null.
std::unique_ptr<DeviceGraph> record(at::Device device, const std::function<void()>& work);

}  // namespace mhar::ops
