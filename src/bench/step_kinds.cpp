#include "bench/step_kinds.h"

namespace mhar::bench {
namespace {

struct Pattern {
  std::string_view part;  ///< of the demangled name, arguments included
  StepKind kind;
};

// The first line that a name contains decides, so libraries' attention stands before the GEMM words inside its names,
// and ATen's fills and copies before the elementwise kernels they are made with.
constexpr Pattern kPatterns[] = {
    {"sdpa", StepKind::attention},
    {"flash", StepKind::attention},
    {"fmha", StepKind::attention},
    {"cudnn", StepKind::attention},

    {"near_forward_kernel", StepKind::reads},
    {"near_backward_kernel", StepKind::reads},
    {"far_forward", StepKind::reads},
    {"far_backward_kernel", StepKind::reads},
    {"split_keys_kernel", StepKind::reads},
    {"key_sums_kernel", StepKind::reads},
    {"add_sums_kernel", StepKind::reads},
    {"row_sums_kernel", StepKind::reads},

    {"head_loss", StepKind::loss},

    {"AdamwArguments", StepKind::optimizer},
    {"squares_kernel", StepKind::optimizer},
    {"finish_kernel", StepKind::optimizer},

    {"norm_forward_kernel", StepKind::pointwise},
    {"norm_backward_kernel", StepKind::pointwise},
    {"swiglu_", StepKind::pointwise},
    {"QkRope", StepKind::pointwise},  // by its argument: its kernels are forward_kernel and backward_kernel
    {"column_sums_kernel", StepKind::pointwise},

    {"nvjet", StepKind::gemm},
    {"gemm", StepKind::gemm},
    {"gemv", StepKind::gemm},
    {"cutlass", StepKind::gemm},
    {"splitK", StepKind::gemm},
    {"cublas", StepKind::gemm},

    // The embedding, whose backward pass sorts ids to add in a fixed order.
    {"embedding", StepKind::pointwise},
    {"indexSelect", StepKind::pointwise},
    {"gather_kernel", StepKind::pointwise},
    {"compute_grad_weight", StepKind::pointwise},
    {"sum_and_scatter", StepKind::pointwise},
    {"krn_partial", StepKind::pointwise},
    {"RadixSort", StepKind::pointwise},
    {"Fill", StepKind::other},
    {"copy", StepKind::other},
    {"elementwise_kernel", StepKind::pointwise},
};

}  // namespace

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::gemm:
      return "gemm";
    case StepKind::attention:
      return "attention";
    case StepKind::reads:
      return "reads";
    case StepKind::pointwise:
      return "pointwise";
    case StepKind::loss:
      return "loss";
    case StepKind::optimizer:
      return "optimizer";
    case StepKind::other:
      break;
  }
  return "other";
}

StepKind kind_of(std::string_view kernel) {
  for (const Pattern& pattern : kPatterns) {
    if (kernel.find(pattern.part) != std::string_view::npos) return pattern.kind;
  }
  return StepKind::other;
}

}  // namespace mhar::bench
