#pragma once
// What holds without a reference, and numbers known beforehand.
#include "kernels/depth_read/cases.h"

namespace mhar::kernels {

/// One value everywhere for each source and gradient; queries of zero, gains of one, no norms.
inline Problem constant_problem(const DepthSizes& sizes, const std::vector<double>& sources,
                                const std::vector<double>& gradients) {
  Problem problem{sizes, static_cast<int64_t>(sources.size()), {}};
  for (const double value : sources) {
    problem.input.sources.emplace_back(sizes.values(), value);
    problem.input.queries.emplace_back(sizes.width, 0.0);
    problem.input.gains.emplace_back(sizes.width, 1.0);
  }
  for (const double value : gradients) problem.input.output_gradients.emplace_back(sizes.values(), value);
  return problem;
}

inline void expect_all(const Values& values, double wanted, double tolerance, const std::string& what) {
  for (int64_t i = 0; i < values.count(); ++i)
    ASSERT_NEAR(values.at(i), wanted, tolerance) << what << ", element " << i;
}

/// Field case 1: a query of zero gives the plain mean, here 36, of 73 sources; each gets a 73rd of the gradient.
inline void expect_plain_mean(const Subject& subject) {
  std::vector<double> sources(73), gradients(73, 0.0);
  for (int i = 0; i < 73; ++i) sources[i] = i;
  gradients.back() = 73;
  for (const Element type : subject.types) {
    const DepthSizes sizes{7, 64, 4, type, 1e-6};
    if (!subject.takes(sizes, 73)) continue;
    const double rounding = 4 * ulp(statistic_type(type), 1);  // of ln 73, in fp32
    const Problem problem = constant_problem(sizes, sources, gradients);
    for (const int64_t chunk : {1, 5, 8, 16}) {
      const Outcome outcome = subject.run(problem, chunk, chunk);
      const std::string what = describe(problem.sizes, 73, chunk, chunk);
      expect_all(outcome.mixes.back(), 36.0, ulp(type, 36) + 36 * rounding, what);
      for (const Values& ds : outcome.source_gradients) expect_all(ds, 1.0, ulp(type, 1) + rounding, what);
      for (int64_t r = 0; r < 73; ++r) {
        const double mean = 0.5 * static_cast<double>(r);
        expect_all(outcome.mixes[r], mean, ulp(type, mean) + mean * rounding, what);
      }
    }
  }
}

/// Field case 29: 73 sites share a source; sums of its gradient in the storage type would stop at 1.
inline void expect_wide_sums(const Subject& subject) {
  std::vector<double> sources(73), gradients(73);
  for (int i = 0; i < 73; ++i) sources[i] = 0.25 * i, gradients[i] = i ? (i + 1) / 512.0 : 1.0;
  for (const Element type : subject.types) {
    const DepthSizes sizes{5, 64, 4, type, 1e-6};
    if (!subject.takes(sizes, 73)) continue;
    const Problem problem = constant_problem(sizes, sources, gradients);
    for (const int64_t chunk : {4, 8}) {
      const double tolerance = type == Element::bf16 || type == Element::f16 ? 0 : 1e-6;
      expect_all(subject.run(problem, chunk, chunk).source_gradients[0], 1.140625, tolerance, name_of(type));
    }
  }
}

/// Field case 3: the first site returns its source and hands its gradient on, bit for bit, whatever its query is.
inline void expect_first_site_exact(const Subject& subject) {
  for (const Element type : subject.types)
    for (const int64_t D : {8, 40, 512, 1000}) {
      const DepthSizes sizes{33, D, 4, type, 1e-6};
      if (!subject.takes(sizes, 6)) continue;
      for (const int64_t active : {1, 6}) {
        const Problem problem = draw_problem(sizes, 6, {active, false, 1, 8});
        const Outcome outcome = subject.run(problem, 4, 4);
        EXPECT_TRUE(outcome.mixes[0] == Values(type, problem.input.sources[0]));
        if (active == 1) {
          EXPECT_TRUE(outcome.source_gradients[0] == Values(type, problem.input.output_gradients[0]));
        }
      }
    }
}

/// Field case 6: a key rounded to bf16 gives 0.3024. The weight follows from the denominator, which is fp32.
inline void expect_exact_keys(const Subject& subject) {
  for (const Element type : subject.types) {
    const DepthSizes sizes{3, 1024, 1, type, 1e-6};
    if (!subject.takes(sizes, 2)) continue;
    Problem problem = constant_problem(sizes, {0, 2}, {});
    for (int64_t i = 0; i < 3 * 1024; ++i) problem.input.sources[0][i] = i % 2 ? 1 : 3;
    problem.input.queries[1].assign(1024, 1.0 / 128);
    const double logit = 16 / std::sqrt(5.0);
    for (const int64_t chunk : {1, 2}) {
      const Values lse = subject.run(problem, chunk, 1).lse[1];
      for (int64_t p = 0; p < 3; ++p) EXPECT_NEAR(std::exp(logit - lse.at(p)), 0.3006, 0.0003) << name_of(type);
    }
  }
}

/// Logits of about -6e9, and of both signs and 1e4: everything stays finite and no weight exceeds one.
inline void expect_finite(const Subject& subject) {
  for (const Element type : subject.types)
    for (const bool huge : {false, true}) {
      if (huge && type == Element::f16) continue;  // a query of that size has no half
      const DepthSizes sizes{5, 64, 2, type, 1e-6};
      if (!subject.takes(sizes, 19)) continue;
      Problem problem = draw_problem(sizes, 19, {19, true, 1e4, 6});
      if (huge) {
        for (auto& source : problem.input.sources)
          for (double& s : source) s = rounded(type, std::abs(s) + 0.5);
        for (auto& query : problem.input.queries) query.assign(64, rounded(type, -2e8));
      }
      const Outcome outcome = subject.run(problem, 6, 5);
      for (const auto* part : {&outcome.mixes, &outcome.outputs, &outcome.lse, &outcome.mix_gradients,
                               &outcome.source_gradients, &outcome.norm_gradients})
        for (const Values& values : *part)
          for (const double one : values.numbers()) ASSERT_TRUE(std::isfinite(one)) << name_of(type) << huge;
      for (int64_t r = 1; r < 19; ++r)
        for (const double one : outcome.key_gradients[r].numbers()) ASSERT_TRUE(std::isfinite(one)) << r;
      // A mix of weights that sum to one lies between its sources.
      for (int64_t r = 0; r < 19; ++r)
        for (int64_t pd = 0; pd < sizes.values(); ++pd) {
          double least = problem.input.sources[0][pd], most = least;
          for (int64_t i = 1; i <= r; ++i) {
            least = std::min(least, problem.input.sources[i][pd]), most = std::max(most, problem.input.sources[i][pd]);
          }
          const double margin = 2 * ulp(type, std::max(std::abs(least), std::abs(most)));
          const double o = outcome.mixes[r].at(pd);
          ASSERT_TRUE(o >= least - margin && o <= most + margin) << name_of(type) << ", site " << r;
        }
    }
}

/// Field case 39: many tokens; each row must be that of the same token in a short history.
inline void expect_many_tokens(const Subject& subject, int64_t tokens, int64_t width, int64_t sites) {
  for (const Element type : subject.types) {
    const DepthSizes sizes{tokens, width, 4, type, 1e-6};
    if (!subject.takes(sizes, sites)) continue;
    Problem problem = draw_problem(sizes, sites, {sites, true, 2, 7}), last = problem;
    last.sizes.tokens = 1;
    for (auto* list : {&last.input.sources, &last.input.output_gradients})
      for (auto& rows : *list) rows.erase(rows.begin(), rows.end() - width);
    const Outcome all = subject.run(problem, 2, 2), one = subject.run(last, 2, 2);
    const auto expect_tail = [&](const std::vector<Values>& longer, const std::vector<Values>& shorter) {
      for (size_t r = 0; r < shorter.size(); ++r)
        for (int64_t d = 0; d < width; ++d)
          ASSERT_NEAR(longer[r].at((tokens - 1) * width + d), shorter[r].at(d), 8 * ulp(type, 4)) << name_of(type);
    };
    expect_tail(all.mixes, one.mixes), expect_tail(all.outputs, one.outputs);
    expect_tail(all.source_gradients, one.source_gradients);
  }
}

/// Field case 34: sums over tokens keep fp32's accuracy.
inline void expect_accurate_token_sums(const Subject& subject, const DepthSizes& sizes, int64_t sites) {
  const Problem problem = draw_problem(sizes, sites, {sites, true, 1, 12});
  const auto exact = reference::depth_history<double>(problem.reference_sizes(), problem.input);
  const Outcome outcome = subject.run(problem, 3, 3);
  for (int64_t r = 1; r < sites; ++r)
    for (int64_t d = 0; d < sizes.width; ++d)
      ASSERT_NEAR(outcome.key_gradients[r].at(d) * problem.input.gains[r][d], exact.query_gradients[r][d],
                  1e-4 * largest(exact.query_gradients[r]));
}

}  // namespace mhar::kernels
