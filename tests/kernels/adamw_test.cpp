#include "kernels/adamw/adamw.h"

#include <gtest/gtest.h>

#include "kernels/adamw_state.h"
#include "kernels/cuda_status.h"
#include "kernels/random.h"
#include "reference/adamw.h"

namespace mhar::kernels {
namespace {

/// `stored` is what rounding `exact` to nearest may give, with `slack` for the fp32 arithmetic before it.
void expect_rounded(Element type, double stored, double exact, double slack) {
  const double half = type == Element::bf16 ? std::max(std::abs(exact) * std::ldexp(1.0, -8), 1e-40) : 0.0;
  EXPECT_NEAR(stored, exact, half + slack);
}

TEST(Adamw, EveryCombinationFollowsTheReference) {
  constexpr int64_t count = 1201;
  for (const AdamwCase& kind : adamw_cases()) {
    SCOPED_TRACE(kind.name());
    for (const int64_t update : {1, 7}) {
      AdamwState state = AdamwState::random(kind, count);
      std::vector<double> p, g, m, v;
      for (int64_t i = 0; i < count; ++i) {
        p.push_back(kind.master ? state.master.at(i) : state.parameter.at(i)), g.push_back(state.gradient.at(i));
        m.push_back(state.moment1.at(i)), v.push_back(state.moment2.at(i));
      }
      const AdamwArguments a = state.arguments(update);
      adamw_cpu({0, count}, a);
      reference::adamw<double>({state.kRate, a.beta1, a.beta2, a.eps, state.kDecay, state.clip.factor, update}, p, g, m,
                               v);
      for (int64_t i = 0; i < count; ++i) {
        // Sums of two terms: 1e-6 of the larger term, not of a result that may cancel.
        expect_rounded(kind.moment, state.moment1.at(i), m[i], 1e-6 * (std::abs(m[i]) + std::abs(g[i])) + 1e-40);
        expect_rounded(kind.moment, state.moment2.at(i), v[i], 1e-6 * v[i] + 1e-40);
        const double slack = 1e-6 * (std::abs(p[i]) + 1.0);
        if (kind.master) {
          EXPECT_NEAR(state.master.at(i), p[i], slack);
        }
        const double stored = state.parameter.at(i);
        if (kind.rounding == Rounding::stochastic && !kind.master && kind.parameter == Element::bf16) {
          EXPECT_NEAR(stored, p[i], std::abs(p[i]) * std::ldexp(1.0, -7) + slack);  // either neighbour
        } else {
          expect_rounded(kind.parameter, stored, p[i], slack);
        }
      }
    }
  }
}

TEST(Adamw, SplitsDoNotMatter) {
  constexpr int64_t count = 5000;
  for (const AdamwCase& kind : adamw_cases()) {
    SCOPED_TRACE(kind.name());
    AdamwState whole = AdamwState::random(kind, count), split = whole;
    const AdamwState before = whole;
    adamw_cpu({3, count - 5}, whole.arguments(9));
    const AdamwArguments arguments = split.arguments(9);
    const int64_t cuts[] = {4998, 4997, 3100, 2049, 513, 512, 511, 10, 9, 5, 3};  // last range first
    for (size_t c = 1; c < std::size(cuts); ++c) adamw_cpu({cuts[c], cuts[c - 1] - cuts[c]}, arguments);
    adamw_cpu({3, 0}, arguments);
    EXPECT_TRUE(whole == split);
    for (int64_t i : {0, 1, 2, 4998, 4999}) {
      EXPECT_EQ(whole.parameter.at(i), before.parameter.at(i));
      EXPECT_EQ(whole.moment1.at(i), before.moment1.at(i));
    }
    EXPECT_NE(whole.parameter.at(3), before.parameter.at(3));
  }
}

TEST(Adamw, SeedAndUpdateChooseTheRounding) {
  const AdamwCase kind{Element::bf16, Element::f32, Element::f32, Rounding::stochastic, false};
  const AdamwState start = AdamwState::random(kind, 1000);
  const auto after = [&](uint64_t seed, uint64_t update) {
    AdamwState state = start;
    AdamwArguments arguments = state.arguments(3);
    arguments.seed = seed, state.step.update = update;
    adamw_cpu({0, 1000}, arguments);
    return state.parameter;
  };
  EXPECT_TRUE(after(1, 3) == after(1, 3));
  EXPECT_FALSE(after(1, 3) == after(2, 3));
  EXPECT_FALSE(after(1, 3) == after(1, 4));
}

/// Mean of 4,096 bf16 weights of 1.0 after 100 updates with gradient 1, rate 1e-3 and no decay.
double mean_after_100(Rounding rounding, bool master, Element moment) {
  const AdamwCase kind{Element::bf16, Element::bf16, moment, rounding, master};
  const std::vector<float> ones(4096, 1.0f), zeros(4096, 0.0f);
  AdamwState state(kind, ones, ones, zeros, zeros);
  for (int64_t update = 1; update <= 100; ++update) {
    AdamwArguments arguments = state.arguments(update);
    state.step = adamw_step(1e-3, 0.0, arguments.beta1, arguments.beta2, update);
    arguments.clip = nullptr;
    adamw_cpu({0, 4096}, arguments);
  }
  double mean = 0;
  for (int64_t i = 0; i < 4096; ++i) mean += state.parameter.at(i) / 4096;
  return mean;
}

TEST(Adamw, Bfloat16UpdatesDoNotStagnate) {
  for (const Element moment : {Element::f32, Element::bf16}) {
    EXPECT_NEAR(mean_after_100(Rounding::stochastic, false, moment), 0.900, 0.002);
    EXPECT_NEAR(mean_after_100(Rounding::nearest, true, moment), 0.900, 0.002);
    EXPECT_EQ(mean_after_100(Rounding::nearest, false, moment), 1.0);
  }
}

TEST(Adamw, ParametersAtTheEndOfTheRangeStayFinite) {
  const AdamwCase kind{Element::bf16, Element::f32, Element::f32, Rounding::stochastic, false};
  const std::vector<float> largest(64, 3.3895e38f), zeros(64, 0.0f);
  AdamwState state(kind, largest, zeros, zeros, zeros);
  const AdamwArguments arguments = state.arguments(1);
  state.step.keep = 1.001f;  // pushes the value between the largest bf16 and the largest fp32
  adamw_cpu({0, 64}, arguments);
  for (int64_t i = 0; i < 64; ++i) EXPECT_TRUE(std::isfinite(state.parameter.at(i)));
}

TEST(Adamw, NothingIsWrittenOnceStopped) {
  for (const AdamwCase& kind : adamw_cases()) {
    AdamwState state = AdamwState::random(kind, 1000);
    const AdamwState before = state;
    state.clip.stopped = 1;
    adamw_cpu({0, 1000}, state.arguments(2));
    EXPECT_TRUE(state == before) << kind.name();
  }
}

TEST(CudaStatus, SaysWhatTheBuildHas) {
  if (built_with_cuda()) {
    EXPECT_STRNE(cuda_error_text(2), cuda_error_text(0));
    return;
  }
  AdamwState state = AdamwState::random(adamw_cases()[0], 8);
  EXPECT_EQ(adamw_cuda({0, 8}, state.arguments(1), nullptr), not_built_with_cuda);
  EXPECT_STREQ(cuda_error_text(not_built_with_cuda), "this build has no CUDA kernels");
}

}  // namespace
}  // namespace mhar::kernels
