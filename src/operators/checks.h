#pragma once
#include <ATen/ATen.h>

namespace mhar::operators {

/// What every operator demands of its arguments; std::invalid_argument (a ValueError in Python) in the project's
/// words. sources [P, D] each of one type and device, query [D] or [1, D] and gain [D] of that type, heads a divisor of
/// D.
void check_site(at::TensorList sources, const at::Tensor& query, const at::Tensor& gain, int64_t heads);

/// sources [R, P, D], queries and gains [R, D].
void check_history(const at::Tensor& sources, const at::Tensor& queries, const at::Tensor& gains, int64_t heads);

}  // namespace mhar::operators
