#include "ops/clip.h"

#include <cstring>

#include "ops/depth_engine.h"
#include "ops/shapes.h"

namespace mhar::ops {

at::Tensor make_clip_report(int64_t microbatches, at::Device device) {
  return at::zeros({kClipWords + microbatches}, at::TensorOptions(device).dtype(at::kFloat));
}

kernels::Clip read_clip(const at::Tensor& report) {
  kernels::Clip clip{};
  std::memcpy(&clip, report.const_data_ptr<float>(), sizeof clip);
  return clip;
}

void clip(const at::Tensor& gradient, double limit, const at::Tensor& report) {
  const auto type = gradient.scalar_type();
  if ((type != at::kFloat && type != at::kBFloat16) || !gradient.is_contiguous()) {
    throw std::invalid_argument(
        describe({"clip", "gradient", "contiguous fp32 or bf16", c10::str(type), "convert it"}));
  }
  if (report.device() != gradient.device() || report.scalar_type() != at::kFloat || report.numel() < kClipWords) {
    throw std::invalid_argument(describe({"clip", "report", "memory of make_clip_report() on the gradient's device",
                                          c10::str(report.scalar_type(), " on ", report.device()), "make it there"}));
  }
  const at::Tensor partials = at::empty({kernels::kClipPartials}, report.options());
  auto* words = report.data_ptr<float>();
  const kernels::ClipArguments arguments{.gradient = gradient.const_data_ptr(),
                                         .type = type == at::kFloat ? kernels::Element::f32 : kernels::Element::bf16,
                                         .count = gradient.numel(),
                                         .losses = words + kClipWords,
                                         .microbatches = report.numel() - kClipWords,
                                         .limit = limit,
                                         .clip = reinterpret_cast<kernels::Clip*>(words),
                                         .partials = partials.data_ptr<float>()};
  const auto run = gradient.is_cuda() ? kernels::clip_cuda : kernels::clip_cpu;
  require_launched("clip", run(arguments, depth_queue(gradient.device())));
}

}  // namespace mhar::ops
