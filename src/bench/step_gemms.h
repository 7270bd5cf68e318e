#pragma once
#include <ATen/ATen.h>

#include <string>
#include <vector>

#include "config/run_config.h"

namespace mhar::bench {

/// A weight matrix [out, in] of the model, or those that share one product, with as many copies as layers.
struct StepMatrix {
  std::string name;
  int64_t out, in, copies;

  int64_t weights() const { return out * in * copies; }
};

/// Everything that a step multiplies by: four products a layer and the output head.
std::vector<StepMatrix> matrices(const ModelConfig& model);

/// Floating-point operations of a step, forward and backward, multiply and add counted apart. Depth reads, norms and
/// what is computed twice are left out. Attention is causal: each query meets the keys up to its own.
struct StepFlops {
  double gemm = 0, attention = 0;
  double total() const { return gemm + attention; }
};
StepFlops step_flops(const RunConfig& config);

/// What the device's matrix products take, in its library's own choice of algorithm.
struct GemmRates {
  struct Product {
    std::string name;
    double forward_ms, input_ms, weight_ms;  ///< of all copies in a step: y, dx, dw
    double flops;                            ///< of the three
  };
  std::vector<Product> products;
  int64_t peak_size = 0;  ///< rows, columns and depth of the product that `peak` is measured on
  double peak = 0;        ///< operations per second

  double total_ms() const;
};

/// Measures every product of a step in the storage type, each alone and several times in a row.
GemmRates measure_gemms(const RunConfig& config, at::Device device);

}  // namespace mhar::bench
