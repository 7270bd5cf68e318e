#pragma once
#include <ATen/ATen.h>

#include "kernels/adamw/adamw.h"

namespace mhar::ops {

/// What adamw() works on.
struct AdamWBuffers {
  at::Tensor parameter;         ///< fp32 or bf16
  at::Tensor gradient;          ///< fp32 or bf16: of all parameters or of a piece of them
  int64_t gradient_from = 0;    ///< where that begins, a multiple of 8
  at::Tensor moment1, moment2;  ///< fp32 or bf16, both of one type
  at::Tensor master;            ///< fp32 copies, or undefined
  at::Tensor step;              ///< as make_adamw_step() gives it
  at::Tensor clip;              ///< as ops::clip() leaves it (ops/clip.h), or undefined: not clipped
};

/// Memory for a kernels::AdamwStep on a device.
at::Tensor make_adamw_step(at::Device device);
/// Fills it without waiting for the device.
void set_adamw_step(const at::Tensor& memory, const kernels::AdamwStep& step);

/// One AdamW update of the parameters that have a gradient here (Eq. 26 to 29), on their device, all threads. The
/// settings of kernels::AdamwArguments are taken from `arguments`, pointers and types from `buffers`. Flat buffers
/// contiguous and of one size but for the gradient, all on one device, else std::invalid_argument.
void adamw(const AdamWBuffers& buffers, kernels::AdamwArguments arguments);

}  // namespace mhar::ops
