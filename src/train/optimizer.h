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

  /// Update number `update` (from 1) with `gradient`, laid out like the parameters, fp32 or their type, scaled by the
  /// clip factor on the way in.
  void update(const at::Tensor& gradient, int64_t update, double rate, double clip_factor);

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
};

/// Factor min(1, limit / (norm + 1e-6)) of clipping at the global norm.
double clip_factor(double norm, double limit);

}  // namespace mhar
