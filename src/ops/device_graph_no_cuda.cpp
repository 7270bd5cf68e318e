// Builds without CUDA have nothing to record.
#include "ops/device_graph.h"

namespace mhar::ops {

std::unique_ptr<DeviceGraph> record(at::Device, const std::function<void()>&) { return nullptr; }

}  // namespace mhar::ops
