#pragma once
// Bridges between tensors and the reference's plain vectors, and the measured tolerance of the style page.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace mhar::testing {

// The tensors here are small: more threads only wait for one another, for long where cores are shared.
inline const bool kOneThread = (at::set_num_threads(1), true);

/// Standard normal values of a type, the same for the same seed, on the CPU.
inline at::Tensor normal(at::IntArrayRef shape, uint64_t seed, at::ScalarType type = at::kDouble, double scale = 1.0) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> distribution(0.0, scale);
  at::Tensor result = at::empty(shape, at::kDouble);
  for (int64_t i = 0; i < result.numel(); ++i) result.data_ptr<double>()[i] = distribution(generator);
  return result.to(type);
}

/// The elements in row-major order.
template <typename T>
std::vector<T> values(const at::Tensor& tensor) {
  const at::Tensor plain = tensor.detach().to(at::kCPU, c10::CppTypeToScalarType<T>::value).contiguous();
  return {plain.data_ptr<T>(), plain.data_ptr<T>() + plain.numel()};
}

/// What storing fp32 values in a type leaves of them.
inline std::vector<float> stored(const std::vector<float>& all, at::ScalarType type) {
  return values<float>(at::tensor(all, at::kFloat).to(type));
}

template <typename T>
double largest(const std::vector<T>& all) {
  double most = 0;
  for (const T& one : all) most = std::max(most, std::abs(static_cast<double>(one)));
  return most;
}

/// The larger of two; a NaN wins.
inline double worse(double a, double b) { return std::isnan(a) || a >= b ? a : b; }

template <typename T>
double distance(const std::vector<T>& got, const std::vector<double>& exact) {
  EXPECT_EQ(got.size(), exact.size());
  double most = 0;
  for (size_t i = 0; i < exact.size(); ++i) most = worse(std::abs(static_cast<double>(got[i]) - exact[i]), most);
  return most;
}

/// Distance between neighbouring values of a type around a magnitude.
inline double ulp(at::ScalarType type, double magnitude) {
  const int digits = type == at::kDouble ? 52 : type == at::kFloat ? 23 : 7;
  return magnitude == 0 ? 0 : std::ldexp(1.0, std::ilogb(magnitude) - digits);
}

/// Style page, point 4: error against fp64 at most twice that of the plain loops with fp32 sums and storage-type
/// stores, plus one ulp of the storage type, in the max norm; errors are counted in ulps of the largest exact value.
/// With fp32 storage both errors are the same kind of rounding noise, so a few numbers alone compare luck: add() takes
/// several shapes and draws into the same two maxima.
class Measured {
 public:
  void add(const at::Tensor& got, const std::vector<float>& loops, const std::vector<double>& exact,
           at::ScalarType type) {
    const double unit = ulp(type, largest(exact));
    const auto in_ulps = [&](double error) { return error == 0 ? 0 : error / unit; };
    error_ = worse(in_ulps(distance(values<double>(got), exact)), error_);
    loops_ = std::max(loops_, in_ulps(distance(stored(loops, type), exact)));
  }
  void expect(const std::string& what) const { EXPECT_LE(error_, 2 * loops_ + 1) << what << ", in ulps"; }

 private:
  double error_ = 0, loops_ = 0;
};

/// Distance over size (at least 1), both in the 2-norm.
inline double relative_distance(const at::Tensor& got, const std::vector<double>& exact) {
  const at::Tensor right = at::tensor(exact, at::kDouble);
  const double size = right.norm().item<double>();
  return (at::tensor(values<double>(got), at::kDouble) - right).norm().item<double>() / std::max(size, 1.0);
}

inline void expect_close(const std::string& what, const at::Tensor& got, const std::vector<double>& exact,
                         double tolerance) {
  EXPECT_LE(distance(values<double>(got), exact), tolerance * std::max(1.0, largest(exact))) << what;
}

/// The CPU, and the GPU where there is one; says so where there is none.
inline std::vector<at::Device> devices() {
  std::vector<at::Device> all{at::Device(at::kCPU)};
  if (torch::cuda::is_available()) {
    all.emplace_back(at::kCUDA, 0);
  } else {
    std::printf("[ no GPU   ] on the CPU alone\n");
  }
  return all;
}

/// An upstream gradient as the two views that kernels trip over: an expanded scalar, and a transposed buffer.
inline std::vector<at::Tensor> awkward_views(at::IntArrayRef shape, at::ScalarType type) {
  std::vector<int64_t> turned(shape.rbegin(), shape.rend());
  std::vector<int64_t> order;
  for (int64_t i = static_cast<int64_t>(shape.size()) - 1; i >= 0; --i) order.push_back(i);
  return {at::ones({}, type).expand(shape), normal(turned, 77, type).permute(order)};
}

/// The message of the Error that `action` throws; empty, and a failure, when it throws none.
template <typename Error, typename Action>
std::string message_of(const Action& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

}  // namespace mhar::testing
