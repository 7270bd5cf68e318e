#pragma once
#include <cstdint>

namespace mhar::kernels {

/// Number type of a buffer that a kernel gets as a plain pointer.
enum class Element { f32, bf16, f16, f64 };

constexpr int64_t bytes_of(Element type) {
  switch (type) {
    case Element::f64:
      return 8;
    case Element::f32:
      return 4;
    default:
      return 2;
  }
}

}  // namespace mhar::kernels
