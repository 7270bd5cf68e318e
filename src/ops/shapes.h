#pragma once
#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

#include "base/error.h"

namespace mhar::ops {

/// Throws std::invalid_argument "operation: argument: wanted shape, got shape" unless `tensor` has this shape.
inline void require_shape(const char* operation, const char* argument, const at::Tensor& tensor,
                          at::IntArrayRef wanted) {
  if (tensor.sizes() == wanted) return;
  throw std::invalid_argument(describe({operation, argument, "shape " + c10::str(wanted),
                                        "shape " + c10::str(tensor.sizes()), "pass a tensor of that shape"}));
}

}  // namespace mhar::ops
