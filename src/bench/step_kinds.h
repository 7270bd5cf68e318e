#pragma once
#include <array>
#include <string_view>

namespace mhar::bench {

/// What a kernel of a training step, or a byte it moves, is for.
enum class StepKind { gemm, attention, reads, pointwise, loss, optimizer, other };

inline constexpr std::array kStepKinds = {StepKind::gemm, StepKind::attention, StepKind::reads, StepKind::pointwise,
                                          StepKind::loss, StepKind::optimizer, StepKind::other};

/// As tables and JSON lines call it.
const char* name_of(StepKind kind);

/// The kind of a kernel by its demangled name; `other` for names that no line of the table knows.
StepKind kind_of(std::string_view kernel);

}  // namespace mhar::bench
