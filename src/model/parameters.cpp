#include "model/parameters.h"

#include <torch/torch.h>

namespace mhar {
namespace {

constexpr int64_t kAlignment = 64;  // bytes

at::Tensor pattern(const ParameterSpec& spec) {
  switch (spec.initial.pattern) {
    case Initial::Pattern::ones:
      return at::ones(spec.shape);
    case Initial::Pattern::identity:
      return at::eye(spec.shape[0], spec.shape[1]);
    case Initial::Pattern::first_unit: {
      at::Tensor unit = at::zeros(spec.shape);
      unit.view(-1)[0] = 1;
      return unit;
    }
    default:
      return at::zeros(spec.shape);
  }
}

}  // namespace

Parameters::Parameters(std::vector<ParameterSpec> specs, at::ScalarType type, at::Device device)
    : specs_(std::move(specs)) {
  const int64_t step = kAlignment / static_cast<int64_t>(c10::elementSize(type));
  int64_t total = 0;
  for (size_t i = 0; i < specs_.size(); ++i) {
    index_[specs_[i].name] = i;
    offsets_.push_back(total);
    count_ += specs_[i].count();
    total += (specs_[i].count() + step - 1) / step * step;
  }
  flat_ = at::zeros({total}, at::TensorOptions().dtype(type).device(device));
  for (size_t i = 0; i < specs_.size(); ++i) views_.push_back(part(flat_, i).detach().requires_grad_());
}

at::Tensor Parameters::part(const at::Tensor& buffer, size_t index) const {
  return buffer.narrow(0, offsets_[index], specs_[index].count()).view(specs_[index].shape);
}

const at::Tensor& Parameters::gradient() {
  if (!gradient_.defined()) gradient_ = at::zeros_like(flat_);
  at::NoGradGuard no_gradient;
  std::vector<at::Tensor> places, elsewhere;
  for (size_t i = 0; i < specs_.size(); ++i) {
    at::Tensor& gradient = views_[i].mutable_grad();
    const at::Tensor place = part(gradient_, i);
    if (gradient.defined() && gradient.data_ptr() == place.data_ptr()) continue;
    if (gradient.defined()) {
      places.push_back(place), elsewhere.push_back(gradient);
    } else {
      place.zero_();
    }
    gradient = place;
  }
  // Hundreds of small ones, which would take a launch each.
  if (!places.empty()) at::_foreach_copy_(places, elsewhere);
  return gradient_;
}

void Parameters::clear_gradient() {
  if (!gradient_.defined()) gradient_ = at::zeros_like(flat_);
  for (at::Tensor& view : views_) view.mutable_grad().reset();
}

at::Tensor Parameters::gradient_place(const std::string& name) const {
  return gradient_.defined() ? part(gradient_, index_.at(name)) : at::Tensor();
}

void Parameters::initialise(uint64_t seed) {
  at::NoGradGuard no_gradient;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (size_t i = 0; i < specs_.size(); ++i) {
    at::Tensor value = pattern(specs_[i]);
    if (specs_[i].initial.deviation != 0) {
      value.add_(at::empty(specs_[i].shape).normal_(0.0, 1.0, generator), specs_[i].initial.deviation);
    }
    views_[i].copy_(value);
  }
}

}  // namespace mhar
