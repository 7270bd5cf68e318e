#pragma once
#include <ATen/ATen.h>

#include "ops/linear.h"

namespace mhar::ops {

/// Rows `ids` [P] (int64) of a table [V, D]: [P, D].
///
/// Where the table has a place, backward adds to it and returns nothing to autograd: a few rows are read and
/// written instead of the whole table. With value.grad() undefined the place is first filled with zeros and becomes
/// value.grad(), so a tied head that wrote its gradient there before is added to.
/// Throws std::invalid_argument for a table that is no matrix or ids that are no vector.
at::Tensor embedding(const LinearWeight& table, const at::Tensor& ids);

}  // namespace mhar::ops
