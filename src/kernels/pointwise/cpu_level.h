#pragma once
// The pointwise passes for one level of instructions. Included by one unit per level.
#include "kernels/norm/cpu_rows.h"
#include "kernels/pointwise/passes.h"
#include "kernels/qk_rope/cpu_rows.h"
#include "kernels/swiglu/cpu_rows.h"

namespace mhar::kernels {
namespace {

constexpr PointwisePasses kLevelPasses{norm_forward_pass,     norm_backward_pass,  qk_rope_forward_pass,
                                       qk_rope_backward_pass, swiglu_forward_pass, swiglu_backward_pass};

}  // namespace
}  // namespace mhar::kernels
