#pragma once
// The tests of head_loss, for any device.
#include "kernels/head_loss/head_loss.h"
#include "kernels/pointwise/cases.h"
#include "reference/cross_entropy.h"

namespace mhar::kernels {

struct HeadLossCase {
  HeadLossSizes sizes;
  double z_loss = 0, deviation = 2;
  int64_t shift = 0;  ///< elements that the logits start behind a 16-byte boundary
  bool gradient = true, squares = true, scaled = false;
};

struct HeadLossOutcome {
  Values loss, squares, gradient;
  bool operator==(const HeadLossOutcome&) const = default;
};

constexpr double kHeadLossWeight = 0.37, kHeadLossScale = 1.25;

inline HeadLossOutcome run_head_loss(const HeadLossKernels& kernels, Device& device, const HeadLossCase& c,
                                     const Values& logits, const std::vector<int64_t>& targets) {
  const auto& z = c.sizes;
  Shifted memory(device, logits, c.shift);
  Memory places(device, z.rows * 8), loss(device, z.rows * 4), squares(device, z.rows * 4);
  device.upload(places.at(), targets.data(), z.rows * 8);
  const Memory scale(device, Values(Element::f32, std::vector<double>{kHeadLossScale}));
  HeadLoss a{.logits = memory.at(),
             .targets = static_cast<const int64_t*>(places.at()),
             .loss = static_cast<float*>(loss.at()),
             .gradient = c.gradient,
             .weight = kHeadLossWeight,
             .z_loss = c.z_loss};
  if (c.squares) a.squares = static_cast<float*>(squares.at());
  if (c.scaled) a.scale = static_cast<const float*>(scale.at());
  expect_done(device, kernels.run(z, a, device.queue));
  HeadLossOutcome outcome{loss.read(Element::f32, z.rows), {}, {}};
  if (c.squares) outcome.squares = squares.read(Element::f32, z.rows);
  if (c.gradient) outcome.gradient = memory.read(z.type, z.rows * z.classes);
  return outcome;
}

/// Targets at both ends, in between and not counted.
inline std::vector<int64_t> spread_targets(const HeadLossSizes& z) {
  const int64_t places[] = {0, z.classes - 1, -1, z.classes / 2, -100, z.classes / 3};
  std::vector<int64_t> targets(z.rows);
  for (int64_t p = 0; p < z.rows; ++p) targets[p] = places[p % 6];
  return targets;
}

/// The rows one by one: the reference reduces the losses of several.
template <typename T>
struct HeadLossRows {
  std::vector<T> loss, squares, gradient;
  HeadLossRows(const HeadLossCase& c, const Values& logits, const std::vector<int64_t>& targets) {
    const auto& z = c.sizes;
    const T weight = static_cast<T>(kHeadLossWeight) * static_cast<T>(c.scaled ? kHeadLossScale : 1);
    for (int64_t p = 0; p < z.rows; ++p) {
      std::vector<T> row(z.classes);
      for (int64_t i = 0; i < z.classes; ++i) row[i] = static_cast<T>(logits.at(p * z.classes + i));
      const reference::CrossEntropySizes sizes{1, z.classes, reference::Reduction::sum, c.z_loss};
      const auto one = reference::cross_entropy<T>(sizes, row, {&targets[p], 1});
      const T lse = one.log_normaliser[0];
      loss.push_back(one.loss), squares.push_back(targets[p] < 0 ? T(0) : lse * lse);
      for (const T g : one.gradient) gradient.push_back(weight * g);
    }
  }
};

/// By the tolerance rule.
inline void expect_head_loss(const HeadLossKernels& kernels, Device& device, const HeadLossCase& c) {
  const auto& z = c.sizes;
  SCOPED_TRACE(std::string(name_of(z.type)) + " P " + std::to_string(z.rows) + " V " + std::to_string(z.classes));
  const auto targets = spread_targets(z);
  Measured losses, squares, gradients;
  for (uint64_t seed = 0; seed < (z.rows * z.classes < 4000 ? 8u : 1u); ++seed) {
    const Values logits = draw(z.type, z.rows * z.classes, seed, 0, c.deviation);
    const HeadLossOutcome got = run_head_loss(kernels, device, c, logits, targets);
    const HeadLossRows<double> exact(c, logits, targets);
    const HeadLossRows<float> loops(c, logits, targets);
    compare(losses, got.loss, loops.loss, exact.loss);
    if (c.squares) compare(squares, got.squares, loops.squares, exact.squares);
    if (c.gradient) compare(gradients, got.gradient, loops.gradient, exact.gradient);
    for (int64_t p = 0; c.gradient && p < z.rows; ++p) {
      if (targets[p] >= 0) continue;
      for (int64_t i = 0; i < z.classes; ++i) ASSERT_EQ(got.gradient.at(p * z.classes + i), 0.0) << "not counted";
    }
  }
  losses.expect("loss");
  squares.expect("lse^2");
  gradients.expect("gradient");
}

inline void expect_head_losses(const HeadLossKernels& kernels, Device& device) {
  for (const Element type : kStorage) {
    for (const int64_t classes : {1, 2, 7, 8, 40, 257, 1000, 4104, 33000}) {
      for (const int64_t rows : {0, 1, 13}) expect_head_loss(kernels, device, {{rows, classes, type}});
    }
    expect_head_loss(kernels, device, {{2, 151936, type}});
    expect_head_loss(kernels, device, {{3, 100001, type}});
    expect_head_loss(kernels, device, {{7, 264, type}, 1e-2});
    expect_head_loss(kernels, device, {{7, 264, type}, 0.3, 5, 1, true, true, true});
    expect_head_loss(kernels, device, {{7, 264, type}, 0, 60});  // logits whose exponentials leave the range of fp32
    expect_head_loss(kernels, device, {{7, 264, type}, 0, 2, 0, false, false});
  }
}

/// Case 41: where the target is nearly certain, its gradient is minus the sum of the others.
inline void expect_nearly_certain(const HeadLossKernels& kernels, Device& device) {
  for (const Element type : kStorage) {
    for (const double logit : {14.0, 30.0}) {
      Values logits(type, 1024);
      logits.set(17, logit);
      const auto got = run_head_loss(kernels, device, {{1, 1024, type}}, logits, {17});
      const double others = 1023 * std::exp(-logit), exact = -others / (1 + others);
      EXPECT_NEAR(got.gradient.at(17) / (exact * kHeadLossWeight), 1, 0.004) << name_of(type) << " " << logit;
      EXPECT_NEAR(got.loss.at(0) / std::log1p(others), 1, 1e-5) << name_of(type) << " " << logit;
    }
  }
}

/// What must stop a training is not finite; a row that is not counted may hold anything.
inline void expect_faults_seen(const HeadLossKernels& kernels, Device& device) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Element type : kStorage) {
    for (const double bad : {std::nan(""), infinity}) {
      for (const int64_t place : {0, 5, 99}) {
        Values logits = draw(type, 200, 3);
        logits.set(place, bad), logits.set(100 + place, bad);
        const auto got = run_head_loss(kernels, device, {{2, 100, type}}, logits, {5, -1});
        EXPECT_FALSE(std::isfinite(got.loss.at(0))) << bad << " " << place;
        EXPECT_EQ(got.loss.at(1), 0.0);
        for (int64_t i = 100; i < 200; ++i) EXPECT_EQ(got.gradient.at(i), 0.0);
      }
    }
    EXPECT_FALSE(std::isfinite(run_head_loss(kernels, device, {{1, 100, type}}, draw(type, 100, 3), {100}).loss.at(0)));
  }
}

}  // namespace mhar::kernels
