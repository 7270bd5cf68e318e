#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "kernels/clip/clip.h"

namespace mhar::ops {

/// What an update is judged by, in one piece of memory on the device, fp32: kernels::Clip, then the losses of the
/// update's microbatches.
inline constexpr int64_t kClipWords = sizeof(kernels::Clip) / sizeof(float);

/// Zeros: not stopped.
at::Tensor make_clip_report(int64_t microbatches, at::Device device);
/// The losses in it, [microbatches].
inline at::Tensor reported_losses(const at::Tensor& report) { return report.slice(0, kClipWords); }
/// The rest, of a report on the CPU.
kernels::Clip read_clip(const at::Tensor& report);

/// Norm and clip factor (Eq. 25) at `limit` of a gradient in pieces, fp32 or bf16 each, and whether to stop: for good,
/// from the first norm or loss on that is not finite. `report` as made above, on the gradient's device.
/// Throws std::invalid_argument for other types, devices or layouts.
void clip(const std::vector<at::Tensor>& pieces, double limit, const at::Tensor& report);

}  // namespace mhar::ops
