#pragma once
#include <ATen/ATen.h>

#include <string>

#include "checkpoint/safetensors.h"
#include "config/run_config.h"
#include "model/parameters.h"
#include "train/tensor_io.h"

namespace mhar {

/// AdamW over the flat parameters of a model, every parameter decayed (as published for training from scratch).
class Optimizer {
 public:
  Optimizer(Parameters& parameters, const RunConfig& config);

  /// Puts the numbers of update `update` (from 1) to where update() reads them on the device.
  void prepare(int64_t update, double rate);
  /// The prepared update with a gradient, fp32 or the parameters' type, in pieces that cover all of them. `clip`: what
  /// ops::clip made of it; its factor scales the gradient on the way in, and where it says stopped nothing changes.
  void update(const std::vector<GradientPiece>& gradient, const at::Tensor& clip);

  /// Adds "moment1.NAME", "moment2.NAME" and with rounding = master "master.NAME" for every parameter.
  void save(TensorWriter& writer) const;
  /// Takes them back. Throws InputError naming a tensor that is missing, unknown, or of another shape or type.
  void load(const checkpoint::SafetensorsFile& file);

 private:
  struct Part {
    const char* prefix;
    at::Tensor buffer;
  };
  std::vector<Part> parts() const;

  Parameters& parameters_;
  RunConfig config_;
  at::Tensor moment1_, moment2_, master_;
  at::Tensor step_;  // kernels::AdamwStep
};

}  // namespace mhar
