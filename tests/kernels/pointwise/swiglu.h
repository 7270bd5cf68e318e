#pragma once
#include "kernels/pointwise/cases.h"
#include "kernels/swiglu/swiglu.h"
#include "reference/swiglu.h"

namespace mhar::kernels {

struct SwigluOutcome {
  Values inner, gradient;  ///< inner: of the forward pass
  bool operator==(const SwigluOutcome&) const = default;
};

inline SwigluOutcome run_swiglu(const SwigluKernels& kernels, Device& device, const SwigluSizes& z,
                                const Values& gate_up, const Values& du, int64_t shift, bool in_place) {
  const int64_t count = z.rows * z.inner;
  Shifted values(device, gate_up, shift), gradient(device, du, shift);
  Shifted inner(device, z.type, count, shift), again(device, z.type, count, shift);
  Shifted result(device, z.type, 2 * count, shift);
  expect_done(device, kernels.forward(z, {values.at(), inner.at()}, device.queue));
  const Shifted& place = in_place ? values : result;
  void* once_more = in_place ? again.at() : nullptr;
  expect_done(device, kernels.backward(z, {values.at(), gradient.at(), place.at(), once_more}, device.queue));
  if (in_place) {
    EXPECT_TRUE(again.read(z.type, count) == inner.read(z.type, count)) << "u in the backward pass";
  }
  return {inner.read(z.type, count), place.read(z.type, 2 * count)};
}

/// By the tolerance rule; `deviation`: of the gates.
inline void expect_swiglu(const SwigluKernels& kernels, Device& device, const SwigluSizes& z, double deviation = 2,
                          int64_t shift = 0, bool in_place = false) {
  SCOPED_TRACE(std::string(name_of(z.type)) + " P " + std::to_string(z.rows) + " F " + std::to_string(z.inner));
  const int64_t P = z.rows, F = z.inner;
  Measured inners, gates, ups;
  for (uint64_t seed = 0; seed < (P * F < 4000 ? 8u : 1u); ++seed) {
    const Values gate = draw(z.type, P * F, seed, 0, deviation), up = draw(z.type, P * F, seed + 10);
    const Values du = draw(z.type, P * F, seed + 20);
    Values packed(z.type, 2 * P * F);
    for (int64_t i = 0; i < P * F; ++i) {
      packed.set(i / F * 2 * F + i % F, gate.at(i)), packed.set(i / F * 2 * F + F + i % F, up.at(i));
    }
    const SwigluOutcome got = run_swiglu(kernels, device, z, packed, du, shift, in_place);
    Values dgate(z.type, P * F), dup(z.type, P * F);
    for (int64_t i = 0; i < P * F; ++i) {
      dgate.set(i, got.gradient.at(i / F * 2 * F + i % F)), dup.set(i, got.gradient.at(i / F * 2 * F + F + i % F));
    }
    const auto a = gate.numbers(), b = up.numbers(), d = du.numbers();
    const auto fa = floats(gate), fb = floats(up), fd = floats(du);
    const auto exact = reference::swiglu_backward<double>(a, b, d);
    const auto loops = reference::swiglu_backward<float>(fa, fb, fd);
    compare(inners, got.inner, reference::swiglu<float>(fa, fb), reference::swiglu<double>(a, b));
    compare(gates, dgate, loops.gate, exact.gate);
    compare(ups, dup, loops.up, exact.up);
  }
  inners.expect("u");
  gates.expect("da");
  ups.expect("db");
}

inline void expect_swiglus(const SwigluKernels& kernels, Device& device) {
  for (const Element type : kStorage) {
    for (const int64_t inner : {1, 8, 40, 123, 384, 1536}) {
      for (const int64_t rows : {0, 1, 7, 33}) expect_swiglu(kernels, device, {rows, inner, type});
    }
    expect_swiglu(kernels, device, {33, 40, type}, 60);  // gates whose exponentials leave the range of fp32
    expect_swiglu(kernels, device, {33, 40, type}, 2, 1);
    expect_swiglu(kernels, device, {33, 384, type}, 2, 0, true);
  }
}

/// What silu becomes at both ends; u itself where b is one.
inline void expect_swiglu_ends(const SwigluKernels& kernels, Device& device) {
  for (const Element type : kStorage) {
    const SwigluSizes z{1, 4, type};
    const Values packed(type, {200.0, -200.0, 0.0, 1e30, 1, 1, 1, 1}), du(type, {1.0, 1, 1, 1});
    const SwigluOutcome got = run_swiglu(kernels, device, z, packed, du, 0, false);
    const double inner[] = {200, 0, 0, rounded(type, 1e30)}, gate[] = {1, 0, 0.5, 1};
    for (int i = 0; i < 4; ++i) {
      EXPECT_EQ(got.inner.at(i), inner[i]) << i;
      EXPECT_EQ(got.gradient.at(4 + i), inner[i]) << i;
      EXPECT_NEAR(got.gradient.at(i), gate[i], 1e-30) << i;
    }
  }
}

}  // namespace mhar::kernels
