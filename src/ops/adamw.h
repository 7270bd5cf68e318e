#pragma once
#include <ATen/ATen.h>

#include "kernels/adamw/adamw.h"

namespace mhar::ops {

/// One AdamW update of flat buffers on their device (Eq. 26 to 29), all threads.
struct AdamWBuffers {
  at::Tensor parameter;         ///< fp32 or bf16
  at::Tensor gradient;          ///< fp32 or bf16
  at::Tensor moment1, moment2;  ///< fp32 or bf16, both of one type
  at::Tensor master;            ///< fp32 copies, or undefined
};

/// The scalars of kernels::AdamwArguments are taken from `arguments`, the buffers and types from `buffers`. All buffers
/// contiguous and of one size, else std::invalid_argument.
void adamw(const AdamWBuffers& buffers, kernels::AdamwArguments arguments);

}  // namespace mhar::ops
