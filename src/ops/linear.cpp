#include "ops/linear.h"

#include <torch/torch.h>

#include <algorithm>

#include "ops/place.h"
#include "ops/shapes.h"

namespace mhar::ops {
namespace {

using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

bool side_by_side(at::TensorList parts) {
  int64_t next = parts[0].storage_offset();
  return std::all_of(parts.begin(), parts.end(), [&](const Tensor& part) {
    const bool follows = part.is_contiguous() && part.is_alias_of(parts[0]) && part.storage_offset() == next;
    next += part.numel();
    return follows;
  });
}

// The parts' memory as one matrix; not a view in the eyes of autograd, since leaves may not be views of one another.
Tensor as_one(at::TensorList parts) {
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.size(0);
  const int64_t width = parts[0].size(1);
  return at::empty({0}, parts[0].options())
      .set_(parts[0].storage(), parts[0].storage_offset(), {rows, width}, {width, 1});
}

void write_gradient(Tensor place, bool fresh, const Tensor& x, const Tensor& dy) {
  fresh ? at::mm_out(place, dy.t(), x) : place.addmm_(dy.t(), x);
}

struct Linear : torch::autograd::Function<Linear> {
  // `slot` and `places` are std::vectors on purpose: autograd then takes them as values and not as inputs.
  static Tensor forward(AutogradContext* context, const Tensor& x, at::TensorList values,
                        const std::vector<Tensor>& places, const std::vector<Tensor>& slot) {
    const Tensor weight = joined_rows(values);
    variable_list saved{x, weight};
    saved.insert(saved.end(), values.begin(), values.end());
    context->save_for_backward(saved);
    context->saved_data["places"] = places;
    Tensor result = slot[0].defined() ? slot[0] : at::empty({x.size(0), weight.size(0)}, x.options());
    return at::mm_out(result, x, weight.t());
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1], &dy = gradients[0];
    const at::TensorList values = at::TensorList(saved).slice(2);
    const auto places = context->saved_data["places"].toTensorVector();
    variable_list result(1);
    const auto learns = [](const Tensor& value) { return value.requires_grad(); };
    if (std::any_of(values.begin(), values.end(), learns)) {
      for (Tensor& one : weight_gradients(x, dy, values, places)) result.push_back(std::move(one));
    }
    if (context->needs_input_grad(0)) result[0] = dy.mm(weight);
    result.resize(1 + values.size() + 2);
    return result;
  }
};

}  // namespace

Tensor joined_rows(at::TensorList parts) {
  for (const Tensor& part : parts) require_shape("linear", "weight", part, {part.size(0), parts[0].size(1)});
  if (parts.size() == 1) return parts[0];
  at::NoGradGuard no_gradient;
  return side_by_side(parts) ? as_one(parts) : at::cat(parts, 0);
}

std::vector<Tensor> weight_gradients(const Tensor& x, const Tensor& dy, at::TensorList values, at::TensorList places) {
  std::vector<int64_t> rows;
  for (const Tensor& value : values) rows.push_back(value.size(0));
  const auto defined = [](const Tensor& tensor) { return tensor.defined(); };
  if (!std::all_of(places.begin(), places.end(), defined)) return dy.t().mm(x).split_with_sizes(rows, 0);
  const bool fresh = std::none_of(values.begin(), values.end(), [](const Tensor& v) { return v.grad().defined(); });
  std::vector<Tensor> targets(values.size());  // undefined: frozen
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].requires_grad()) continue;
    Tensor& gradient = values[i].mutable_grad();
    if (!gradient.defined()) {
      claim(places[i]);
      gradient = fresh ? places[i] : places[i].zero_();
    }
    targets[i] = gradient;
  }
  if (std::all_of(targets.begin(), targets.end(), defined) && side_by_side(targets)) {
    write_gradient(as_one(targets), fresh, x, dy);
  } else {
    const auto columns = dy.split_with_sizes(rows, 1);
    for (size_t i = 0; i < targets.size(); ++i) {
      if (targets[i].defined()) write_gradient(targets[i], fresh, x, columns[i]);
    }
  }
  return std::vector<Tensor>(values.size());
}

Tensor linear(const Tensor& x, const std::vector<LinearWeight>& weights, const Tensor& slot) {
  std::vector<Tensor> values, places;
  int64_t rows = 0;
  for (const LinearWeight& one : weights) {
    values.push_back(one.value), places.push_back(one.place);
    require_shape("linear", "weight", one.value, {one.value.size(0), x.size(1)});
    if (one.place.defined()) require_shape("linear", "place", one.place, one.value.sizes());
    rows += one.value.size(0);
  }
  if (slot.defined()) require_shape("linear", "slot", slot, {x.size(0), rows});
  return Linear::apply(x, at::TensorList(values), places, std::vector<Tensor>{slot});
}

}  // namespace mhar::ops
