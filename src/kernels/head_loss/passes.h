#pragma once
// The CPU's pass over rows of logits, once per level of instructions.
#include "kernels/head_loss/head_loss.h"

namespace mhar::kernels {

using HeadLossPass = void (*)(const HeadLossSizes&, const HeadLoss&, void* queue);

// cmake/Kernels.cmake gives the first two their instruction sets where the processor is an x86-64.
extern const HeadLossPass head_loss_avx512, head_loss_avx2, head_loss_any;

}  // namespace mhar::kernels
