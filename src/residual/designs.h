#pragma once
#include "residual/design.h"

namespace mhar::residual {

// One maker per design; the registry is their only caller. Designs that differ in a number alone share a file.
std::unique_ptr<Design> make_standard(const Shape& shape);
std::unique_ptr<Design> make_single(const Shape& shape);      // depth.cpp, H = 1
std::unique_ptr<Design> make_multi_head(const Shape& shape);  // depth.cpp, H heads

}  // namespace mhar::residual
