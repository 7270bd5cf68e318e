#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace mhar {

/// Starting value of a parameter: a pattern plus deviation * N(0, 1) on every element.
struct Initial {
  enum class Pattern { zeros, ones, identity, first_unit } pattern = Pattern::zeros;
  double deviation = 0.0;
};

/// What a parameter is, before any memory is taken for it.
struct ParameterSpec {
  std::string name;            ///< its name in model.safetensors
  std::vector<int64_t> shape;  ///< as stored there
  Initial initial;
  bool can_move =
      true;  ///< false: no data gradient can ever reach it (for example the query of a site with one source)

  int64_t count() const {
    int64_t n = 1;
    for (int64_t extent : shape) n *= extent;
    return n;
  }
};

}  // namespace mhar
