#pragma once
#include <ATen/ATen.h>

#include <vector>

namespace mhar::ops {

/// A weight matrix [r, in], and where its gradient belongs if it is to be written there: a place (ops/place.h) of the
/// same shape and type, or undefined.
struct LinearWeight {
  at::Tensor value, place;
};

/// x [P, in] times the weights' rows one below the other, transposed: [P, sum of r], without a bias. Weights that are
/// neighbours in memory, as neighbouring parameters are, make one matrix and one GEMM without a copy; others are copied
/// together. The result is written into `slot` where that is defined.
///
/// Where every place is defined, backward returns no gradient of the weights to autograd: their GEMM writes it. With
/// value.grad() undefined it replaces what is in the place, which becomes value.grad(); otherwise it is added to
/// value.grad(). That spares a buffer, an addition, and filling the place with zeros.
/// Throws std::invalid_argument when widths or the slot's shape differ.
at::Tensor linear(const at::Tensor& x, const std::vector<LinearWeight>& weights, const at::Tensor& slot = {});

/// For those who join the product to autograd themselves: the weights one below the other, and the backward part for
/// dy [P, sum of r]: one gradient per weight, or undefined ones where they were written into their places.
at::Tensor joined_rows(at::TensorList parts);
std::vector<at::Tensor> weight_gradients(const at::Tensor& x, const at::Tensor& dy, at::TensorList values,
                                         at::TensorList places);

}  // namespace mhar::ops
