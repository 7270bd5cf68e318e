#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/adamw/adamw.h"
#include "kernels/bfloat16.h"

namespace mhar::kernels {

/// One combination of types and rounding; the tests iterate all that there are.
struct AdamwCase {
  Element parameter, gradient, moment;
  Rounding rounding;
  bool master;
  std::string name() const {
    const auto type = [](Element e) { return std::string(e == Element::f32 ? "f32" : "bf16"); };
    return "parameter " + type(parameter) + ", gradient " + type(gradient) + ", moments " + type(moment) +
           (master                             ? ", master"
            : rounding == Rounding::stochastic ? ", stochastic"
                                               : ", nearest");
  }
};

inline std::vector<AdamwCase> adamw_cases() {
  std::vector<AdamwCase> cases;
  for (const Element gradient : {Element::f32, Element::bf16}) {
    for (const Element moment : {Element::f32, Element::bf16}) {
      cases.push_back({Element::f32, gradient, moment, Rounding::nearest, false});
      cases.push_back({Element::f32, gradient, moment, Rounding::stochastic, false});
      cases.push_back({Element::bf16, gradient, moment, Rounding::nearest, false});
      cases.push_back({Element::bf16, gradient, moment, Rounding::stochastic, false});
      cases.push_back({Element::bf16, gradient, moment, Rounding::stochastic, true});
    }
  }
  return cases;
}

/// A flat buffer of either type.
struct Buffer {
  Element type = Element::f32;
  std::vector<unsigned char> bytes;

  Buffer() = default;
  Buffer(Element element_type, std::span<const float> values)
      : type(element_type), bytes(values.size() * bytes_of(type)) {
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t narrow = bfloat16_nearest(values[i]);
      if (type == Element::f32) std::memcpy(&bytes[i * 4], &values[i], 4);
      if (type == Element::bf16) std::memcpy(&bytes[i * 2], &narrow, 2);
    }
  }
  double at(int64_t i) const {
    float value;
    uint16_t narrow;
    if (type == Element::f32) return std::memcpy(&value, &bytes[i * 4], 4), value;
    return std::memcpy(&narrow, &bytes[i * 2], 2), bfloat16_to_float(narrow);
  }
  bool operator==(const Buffer&) const = default;
};

/// Parameters, gradients, moments and master copies of one case.
struct AdamwState {
  AdamwCase kind;
  Buffer parameter, gradient, moment1, moment2, master;
  AdamwStep step{};
  Clip clip{1.0f, 0.7f, 0};

  AdamwState(const AdamwCase& adamw_case, std::span<const float> p, std::span<const float> g, std::span<const float> m,
             std::span<const float> v)
      : kind(adamw_case),
        parameter(kind.parameter, p),
        gradient(kind.gradient, g),
        moment1(kind.moment, m),
        moment2(kind.moment, v) {
    if (kind.master) master = Buffer(Element::f32, p);
  }

  static AdamwState random(const AdamwCase& adamw_case, int64_t count) {
    std::mt19937_64 generator(5);
    std::normal_distribution<float> normal;
    std::vector<float> p(count), g(count), m(count), v(count);
    for (int64_t i = 0; i < count; ++i) {
      p[i] = normal(generator), g[i] = normal(generator), m[i] = 0.3f * normal(generator);
      v[i] = std::abs(normal(generator)) + 0.01f;
      if (i % 17 == 0) g[i] *= 1e-20f, m[i] *= 1e-30f, v[i] *= 1e-38f;  // subnormal squares and moments
      if (i % 19 == 0) g[i] = 0.0f;
    }
    return {adamw_case, p, g, m, v};
  }

  /// Moments and gradients of every size, so that each special case of a division and a root occurs. Eight neighbours
  /// are of about one size: a kernel that looks at groups meets all that are ordinary and all kinds that are not.
  static AdamwState of_every_size(const AdamwCase& adamw_case, int64_t count) {
    std::mt19937_64 generator(6);
    std::uniform_real_distribution<float> exponent(-140.0f, 60.0f), near(-3.0f, 3.0f), sign(-1.0f, 1.0f);
    std::vector<float> p(count), g(count), m(count), v(count);
    float sizes[4] = {};
    const auto draw = [&](int of) { return std::copysign(std::exp2(sizes[of] + near(generator)), sign(generator)); };
    for (int64_t i = 0; i < count; ++i) {
      if (i % 8 == 0) {
        for (float& size : sizes) size = exponent(generator);
      }
      p[i] = draw(0), g[i] = draw(1), m[i] = draw(2), v[i] = std::abs(draw(3));
      if (i / 8 % 23 == 0) g[i] = 0.0f, m[i] = i % 2 == 0 ? 0.0f : -0.0f, v[i] = 0.0f;
    }
    return {adamw_case, p, g, m, v};
  }

  static constexpr double kRate = 1e-2, kDecay = 0.1;
  AdamwArguments arguments(int64_t update) {
    AdamwArguments a{};
    a.parameter = parameter.bytes.data(), a.gradient = gradient.bytes.data();
    a.moment1 = moment1.bytes.data(), a.moment2 = moment2.bytes.data();
    a.master = kind.master ? reinterpret_cast<float*>(master.bytes.data()) : nullptr;
    a.parameter_type = kind.parameter, a.gradient_type = kind.gradient, a.moment_type = kind.moment;
    a.rounding = kind.rounding;
    a.beta1 = 0.9, a.beta2 = 0.95, a.eps = 1e-8, a.seed = 42;
    step = adamw_step(kRate, kDecay, a.beta1, a.beta2, update);
    a.step = &step, a.clip = &clip;
    return a;
  }

  bool operator==(const AdamwState& other) const {
    return parameter == other.parameter && moment1 == other.moment1 && moment2 == other.moment2 &&
           master == other.master;
  }
};

}  // namespace mhar::kernels
