#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

namespace mhar::reference {

/// Standard normal values, the same for the same seed.
inline std::vector<double> normal(int64_t count, uint64_t seed, double scale = 1.0) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<double> distribution(0.0, scale);
  std::vector<double> values(count);
  for (double& value : values) value = distribution(generator);
  return values;
}

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double total = 0;
  for (size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
  return total;
}

/// Central differences of `loss` (which reads `x`) against `gradient`, relative to the largest entry of the gradient.
inline void expect_gradient(std::vector<double>& x, const std::vector<double>& gradient,
                            const std::function<double()>& loss, double tolerance = 1e-6, double step = 1e-5) {
  ASSERT_EQ(x.size(), gradient.size());
  double largest = 0;
  for (double entry : gradient) largest = std::max(largest, std::abs(entry));
  ASSERT_GT(largest, 1e-3) << "a gradient of nothing checks nothing";
  for (size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + step;
    const double above = loss();
    x[i] = kept - step;
    const double below = loss();
    x[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * step), tolerance * largest) << "entry " << i;
  }
}

inline void expect_near(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], wanted[i], tolerance) << "entry " << i;
}

}  // namespace mhar::reference
