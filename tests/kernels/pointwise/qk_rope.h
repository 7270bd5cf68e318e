#pragma once
#include "kernels/pointwise/cases.h"
#include "kernels/qk_rope/qk_rope.h"
#include "reference/rms_norm.h"
#include "reference/rotary.h"

namespace mhar::kernels {

struct QkRopeCase {
  QkRopeSizes sizes;
  bool normed = true;
  bool in_place = false;  ///< backward over the gradient; without norms forward over the input too
  int64_t shift = 0;
  uint64_t seed = 1;
};

struct QkRopeOutcome {
  Values rho, turned, gradient, query_weight, key_weight;  ///< turned and gradient: packed, with the values' place
  bool operator==(const QkRopeOutcome&) const = default;
};

struct QkRopeInput {
  Values packed, query_weight, key_weight, gradient, cosine, sine;
  std::vector<double> frequencies;

  explicit QkRopeInput(const QkRopeCase& c) {
    const QkRopeSizes& z = c.sizes;
    const int64_t k = z.head_dim, count = z.rows * (z.heads + 2 * z.kv_heads) * k;
    packed = draw(z.type, count, c.seed, 0, 3), gradient = draw(z.type, count, c.seed + 1);
    query_weight = draw(z.type, k, c.seed + 2, 1, 0.3), key_weight = draw(z.type, k, c.seed + 3, 1, 0.3);
    query_weight.set(0, 0);
    frequencies = reference::inverse_frequencies<double>(k, 1e4);
    cosine = sine = Values(Element::f32, z.positions * k / 2);
    for (int64_t i = 0; i < z.positions * k / 2; ++i) {
      const double angle = static_cast<double>(i / (k / 2)) * frequencies[i % (k / 2)];
      cosine.set(i, std::cos(angle)), sine.set(i, std::sin(angle));
    }
  }
};

inline QkRopeOutcome run_qk_rope(const QkRopeKernels& kernels, Device& device, const QkRopeCase& c) {
  const QkRopeSizes& z = c.sizes;
  const int64_t k = z.head_dim;
  const QkRopeInput in(c);
  Shifted packed(device, in.packed, c.shift), result(device, in.packed, c.shift),
      gradient(device, in.gradient, c.shift);
  Shifted dinput(device, in.gradient, c.shift), query_weight(device, in.query_weight, c.shift);
  Shifted key_weight(device, in.key_weight, c.shift), dquery(device, z.type, k, c.shift);
  Shifted dkey(device, z.type, k, c.shift);
  Memory cosine(device, in.cosine), sine(device, in.sine), rho(device, z.rows * (z.heads + z.kv_heads) * 4);
  Memory scratch(device, kernels.scratch_bytes(z));
  const bool forward_in_place = c.in_place && !c.normed;
  const Shifted &turned = forward_in_place ? packed : result, &back = c.in_place ? gradient : dinput;

  QkRopeForward f{.input = packed_heads(z, packed.at()), .result = packed_heads(z, turned.at())};
  f.cosine = static_cast<float*>(cosine.at()), f.sine = static_cast<float*>(sine.at());
  QkRopeBackward b{.gradient = packed_heads(z, gradient.at()),
                   .input = packed_heads(z, packed.at()),
                   .result = packed_heads(z, back.at())};
  b.cosine = f.cosine, b.sine = f.sine;
  if (c.normed) {
    b.query_weight = f.query_weight = query_weight.at(), b.key_weight = f.key_weight = key_weight.at();
    b.rho = f.rho = static_cast<float*>(rho.at());
    b.query_weight_gradient = dquery.at(), b.key_weight_gradient = dkey.at(), b.scratch = scratch.at();
  }
  expect_done(device, kernels.forward(z, f, device.queue));
  expect_done(device, kernels.backward(z, b, device.queue));
  const int64_t count = in.packed.count();
  QkRopeOutcome outcome{{}, turned.read(z.type, count), back.read(z.type, count), {}, {}};
  if (c.normed) {
    outcome.rho = rho.read(Element::f32, z.rows * (z.heads + z.kv_heads));
    outcome.query_weight = dquery.read(z.type, k), outcome.key_weight = dkey.read(z.type, k);
  }
  return outcome;
}

/// Queries or keys of a packed buffer, side by side.
template <typename T>
std::vector<T> heads_of(const QkRopeSizes& z, const Values& packed, bool queries) {
  const int64_t k = z.head_dim, row = (z.heads + 2 * z.kv_heads) * k, count = (queries ? z.heads : z.kv_heads) * k;
  std::vector<T> all;
  for (int64_t p = 0; p < z.rows; ++p) {
    for (int64_t i = 0; i < count; ++i)
      all.push_back(static_cast<T>(packed.at(p * row + (queries ? 0 : z.heads * k) + i)));
  }
  return all;
}

template <typename T>
struct QkRopeExpected {
  std::vector<T> turned, gradient, weight;
};

template <typename T>
QkRopeExpected<T> qk_rope_loops(const QkRopeCase& c, const QkRopeInput& in, bool queries) {
  const QkRopeSizes& z = c.sizes;
  const int64_t heads = queries ? z.heads : z.kv_heads, k = z.head_dim;
  const reference::RotarySizes turns{z.rows / z.positions, z.positions, heads, k};
  const reference::RmsNormSizes norms{z.rows * heads, k, z.eps};
  std::vector<T> frequencies(in.frequencies.begin(), in.frequencies.end()), weight;
  const Values& stored = queries ? in.query_weight : in.key_weight;
  for (int64_t i = 0; i < k; ++i) weight.push_back(static_cast<T>(stored.at(i)));
  const auto x = heads_of<T>(z, in.packed, queries), dy = heads_of<T>(z, in.gradient, queries);
  const auto back = reference::rotate<T>(turns, frequencies, dy, reference::Turn::backward);
  if (!c.normed) return {reference::rotate<T>(turns, frequencies, x, reference::Turn::forward), back, {}};
  const auto norm = reference::rms_norm<T>(norms, x, weight);
  auto gradients = reference::rms_norm_backward<T>(norms, x, weight, norm, back);
  return {reference::rotate<T>(turns, frequencies, norm.output, reference::Turn::forward), gradients.x,
          gradients.weight};
}

/// Values in the last heads stay as they are, position 0 is exact given rho, the rest follows the tolerance rule.
inline void expect_qk_rope(const QkRopeKernels& kernels, Device& device, QkRopeCase c) {
  const QkRopeSizes& z = c.sizes;
  const int64_t k = z.head_dim, all = z.heads + z.kv_heads, row = (all + z.kv_heads) * k;
  SCOPED_TRACE(std::string(name_of(z.type)) + " P " + std::to_string(z.rows) + " k " + std::to_string(k) +
               (c.normed ? " normed" : "") + (c.in_place ? " in place" : "") + " shift " + std::to_string(c.shift));
  Measured turned[2], gradients[2], weights[2];
  for (int i = 0; i < (z.rows * row < 4000 ? 8 : 1); ++i, c.seed += 100) {
    const QkRopeInput in(c);
    const QkRopeOutcome got = run_qk_rope(kernels, device, c);
    for (int64_t p = 0; p < z.rows; ++p) {
      for (int64_t d = all * k; d < row; ++d) {
        ASSERT_EQ(got.turned.at(p * row + d), in.packed.at(p * row + d));
        ASSERT_EQ(got.gradient.at(p * row + d), in.gradient.at(p * row + d));
      }
      for (int64_t d = 0; p % z.positions == 0 && d < all * k; ++d) {
        const float x = static_cast<float>(in.packed.at(p * row + d));
        const Values& weight = d < z.heads * k ? in.query_weight : in.key_weight;
        const float w = static_cast<float>(weight.at(d % k));
        const double exact =
            c.normed
                ? rounded(z.type,
                          w * static_cast<float>(rounded(z.type, x * static_cast<float>(got.rho.at(p * all + d / k)))))
                : x;
        ASSERT_EQ(got.turned.at(p * row + d), exact) << "row " << p << ", channel " << d;
      }
    }
    for (const bool queries : {true, false}) {
      const auto exact = qk_rope_loops<double>(c, in, queries);
      const auto loops = qk_rope_loops<float>(c, in, queries);
      const auto part = [&](const Values& packed) { return Values(z.type, heads_of<double>(z, packed, queries)); };
      compare(turned[queries], part(got.turned), loops.turned, exact.turned);
      compare(gradients[queries], part(got.gradient), loops.gradient, exact.gradient);
      if (c.normed) compare(weights[queries], queries ? got.query_weight : got.key_weight, loops.weight, exact.weight);
    }
  }
  for (const bool queries : {true, false}) {
    SCOPED_TRACE(queries ? "queries" : "keys");
    turned[queries].expect("turned");
    gradients[queries].expect("gradient");
    if (c.normed) weights[queries].expect("weight");
  }
}

inline void expect_qk_ropes(const QkRopeKernels& kernels, Device& device) {
  for (const Element type : kStorage) {
    for (const bool normed : {true, false}) {
      for (const int64_t k : {2, 6, 16, 32, 64, 66, 80, 96, 128, 160, 250, 256}) {
        for (const bool in_place : {true, false}) {
          expect_qk_rope(kernels, device, {{21, 4, 2, k, 7, type}, normed, in_place});
        }
        expect_qk_rope(kernels, device, {{1, 3, 1, k, 1, type}, normed});
        expect_qk_rope(kernels, device, {{0, 3, 1, k, 1, type}, normed});
      }
      expect_qk_rope(kernels, device, {{33, 2, 2, 64, 33, type}, normed, true, 1});
      expect_qk_rope(kernels, device, {{66, 16, 8, 80, 33, type, 0.25}, normed, true});
    }
  }
}

inline void expect_qk_rope_same_bits(const QkRopeKernels& kernels, Device& device, int times) {
  for (const Element type : kStorage) {
    const QkRopeCase c{{1000, 8, 4, 80, 500, type}, true, true};
    const QkRopeOutcome first = run_qk_rope(kernels, device, c);
    for (int i = 0; i < times; ++i) EXPECT_TRUE(run_qk_rope(kernels, device, c) == first);
  }
}

}  // namespace mhar::kernels
