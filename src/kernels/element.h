#pragma once
#include <cstdint>

namespace mhar::kernels {

/// Number type of a buffer that a kernel gets as a plain pointer.
enum class Element { f32, bf16 };

constexpr int64_t bytes_of(Element type) { return type == Element::f32 ? 4 : 2; }

}  // namespace mhar::kernels
