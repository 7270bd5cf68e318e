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

void clip(const std::vector<at::Tensor>& pieces, double limit, const at::Tensor& report) {
  int64_t ranges = 0;
  for (const at::Tensor& piece : pieces) {
    const auto type = piece.scalar_type();
    if ((type != at::kFloat && type != at::kBFloat16) || !piece.is_contiguous()) {
      throw std::invalid_argument(
          describe({"clip", "gradient", "contiguous fp32 or bf16", c10::str(type), "convert it"}));
    }
    if (report.device() != piece.device() || report.scalar_type() != at::kFloat || report.numel() < kClipWords) {
      throw std::invalid_argument(describe({"clip", "report", "memory of make_clip_report() on the gradient's device",
                                            c10::str(report.scalar_type(), " on ", report.device()), "make it there"}));
    }
    ranges += kernels::clip_ranges(piece.numel());
  }
  const at::Tensor partials = at::empty({ranges}, report.options());
  const bool gpu = report.is_cuda();
  const auto queue = depth_queue(report.device());
  auto* sums = partials.data_ptr<float>();
  for (const at::Tensor& piece : pieces) {
    const auto type = piece.scalar_type() == at::kFloat ? kernels::Element::f32 : kernels::Element::bf16;
    const kernels::ClipPiece one{piece.const_data_ptr(), type, piece.numel(), sums};
    require_launched("clip", (gpu ? kernels::clip_squares_cuda : kernels::clip_squares_cpu)(one, queue));
    sums += kernels::clip_ranges(piece.numel());
  }
  auto* words = report.data_ptr<float>();
  const kernels::ClipArguments arguments{.partials = partials.const_data_ptr<float>(),
                                         .ranges = ranges,
                                         .losses = words + kClipWords,
                                         .microbatches = report.numel() - kClipWords,
                                         .limit = limit,
                                         .clip = reinterpret_cast<kernels::Clip*>(words)};
  require_launched("clip", (gpu ? kernels::clip_cuda : kernels::clip_cpu)(arguments, queue));
}

}  // namespace mhar::ops
