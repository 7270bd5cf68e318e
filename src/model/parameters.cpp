#include "model/parameters.h"

#include <torch/torch.h>

#include "model/names.h"
#include "ops/place.h"

namespace mhar {
namespace {

constexpr int64_t kAlignment = 64;           // bytes
constexpr int64_t kSmallestPiece = 2 << 20;  // elements

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

// A piece ends where a block of the model does, if it is large enough to be worth a launch of its own.
void Parameters::make_pieces() {
  if (!pieces_.empty()) return;
  int64_t begin = 0;
  const auto cut = [&](int64_t end) {
    pieces_.push_back({begin, at::empty({end - begin}, flat_.options())});
    begin = end;
  };
  for (size_t i = 1; i < specs_.size(); ++i) {
    if (block_of(specs_[i].name) != block_of(specs_[i - 1].name) && offsets_[i] - begin >= kSmallestPiece) {
      cut(offsets_[i]);
    }
  }
  cut(flat_.numel());
  for (size_t i = 0, p = 0; i < specs_.size(); ++i) {
    while (offsets_[i] >= pieces_[p].begin + pieces_[p].values.numel()) ++p;
    const auto& [first, values] = pieces_[p];
    const int64_t from = offsets_[i] - first, to = from + specs_[i].count();
    places_.push_back(values.slice(0, from, to).view(specs_[i].shape));
    const int64_t next = i + 1 < specs_.size() ? offsets_[i + 1] - first : values.numel();
    if (next > to) gaps_.push_back(values.slice(0, to, next));
  }
}

const std::vector<GradientPiece>& Parameters::gradient() {
  make_pieces();
  at::NoGradGuard no_gradient;
  std::vector<at::Tensor> targets, elsewhere;
  for (size_t i = 0; i < specs_.size(); ++i) {
    at::Tensor& gradient = views_[i].mutable_grad();
    ops::claim(places_[i]);
    if (gradient.defined() && gradient.data_ptr() == places_[i].data_ptr()) continue;
    if (gradient.defined()) {
      targets.push_back(places_[i]), elsewhere.push_back(gradient);
    } else {
      places_[i].zero_();
    }
    gradient = places_[i];
  }
  // Hundreds of small ones, which would take a launch each.
  if (!targets.empty()) at::_foreach_copy_(targets, elsewhere);
  if (!gaps_.empty()) at::_foreach_zero_(gaps_);
  return pieces_;
}

void Parameters::clear_gradient() {
  make_pieces();
  for (at::Tensor& view : views_) view.mutable_grad().reset();
}

void Parameters::release_gradient() {
  clear_gradient();
  if (!device().is_cuda()) return;  // fresh pages cost the CPU more than they are worth
  for (const GradientPiece& piece : pieces_) ops::release(piece.values);
}

at::Tensor Parameters::gradient_place(const std::string& name) const {
  return places_.empty() ? at::Tensor() : places_[index_.at(name)];
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
