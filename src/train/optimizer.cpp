#include "train/optimizer.h"

#include <torch/torch.h>

#include "base/error.h"
#include "ops/adamw.h"

namespace mhar {

Optimizer::Optimizer(Parameters& parameters, const RunConfig& config) : parameters_(parameters), config_(config) {
  const bool wide = config.moments == "fp32" || config.rounding == "master";
  const auto options = parameters.flat().options().dtype(wide ? at::kFloat : parameters.type());
  moment1_ = at::zeros(parameters.flat().sizes(), options);
  moment2_ = at::zeros_like(moment1_);
  step_ = ops::make_adamw_step(parameters.device());
  if (config.rounding == "master") master_ = parameters.flat().to(at::kFloat);
}

void Optimizer::prepare(int64_t update, double rate) {
  ops::set_adamw_step(step_, kernels::adamw_step(rate, config_.weight_decay, config_.beta1, config_.beta2, update));
}

void Optimizer::update(const std::vector<GradientPiece>& gradient, const at::Tensor& clip) {
  kernels::AdamwArguments arguments{};
  arguments.rounding = config_.rounding == "stochastic" ? kernels::Rounding::stochastic : kernels::Rounding::nearest;
  arguments.beta1 = config_.beta1;
  arguments.beta2 = config_.beta2;
  arguments.eps = config_.adam_eps;
  arguments.seed = static_cast<uint64_t>(config_.seed);
  for (const auto& piece : gradient) {
    ops::adamw({parameters_.flat(), piece.values, piece.begin, moment1_, moment2_, master_, step_, clip}, arguments);
  }
}

std::vector<Optimizer::Part> Optimizer::parts() const {
  std::vector<Part> all = {{"moment1.", moment1_}, {"moment2.", moment2_}};
  if (master_.defined()) all.push_back({"master.", master_});
  return all;
}

void Optimizer::save(TensorWriter& writer) const {
  for (const auto& part : parts()) {
    for (size_t i = 0; i < parameters_.specs().size(); ++i) {
      writer.add(part.prefix + parameters_.specs()[i].name, parameters_.part(part.buffer, i));
    }
  }
}

void Optimizer::load(const checkpoint::SafetensorsFile& file) {
  const auto refuse = [&](const std::string& name, const std::string& wanted, const std::string& got) {
    throw InputError({"load optimizer state", file.path().string() + ": " + name, wanted, got,
                      "resume with the options the run was started with"});
  };
  size_t used = 0;
  for (const auto& part : parts()) {
    for (size_t i = 0; i < parameters_.specs().size(); ++i) {
      const std::string name = part.prefix + parameters_.specs()[i].name;
      const auto found = file.entries().find(name);
      if (found == file.entries().end()) refuse(name, "a tensor of this name", "none");
      const at::Tensor stored = mapped_tensor(found->second, file.bytes(found->second));
      const at::Tensor place = parameters_.part(part.buffer, i);
      if (stored.sizes() != place.sizes() || stored.scalar_type() != place.scalar_type()) {
        refuse(name, c10::str(place.scalar_type(), " ", place.sizes()),
               c10::str(stored.scalar_type(), " ", stored.sizes()));
      }
      place.copy_(stored);
      ++used;
    }
  }
  if (used != file.entries().size()) refuse("tensors", std::to_string(used), std::to_string(file.entries().size()));
}

}  // namespace mhar
