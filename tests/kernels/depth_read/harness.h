#pragma once
// Runs a whole history of reads through any implementation and compares all that it wrote with the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/depth_read/history.h"
#include "kernels/depth_read/storage.h"
#include "reference/depth_history.h"

namespace mhar::kernels {

inline Element statistic_type(Element type) { return type == Element::f64 ? type : Element::f32; }

struct Problem {
  DepthSizes sizes;
  int64_t sites;
  reference::DepthHistoryInput<double> input;  ///< numbers of the storage type

  int64_t active() const { return static_cast<int64_t>(input.output_gradients.size()); }
  reference::DepthHistorySizes reference_sizes() const {
    return {sites, sizes.tokens, sizes.width, sizes.heads, sizes.eps};
  }
  std::vector<double> key(int64_t site) const {  // the product in the type of statistics, as the caller forms it
    std::vector<double> w(sizes.width);
    for (int64_t d = 0; d < sizes.width; ++d) {
      const double q = input.queries[site][d], g = input.gains[site][d];
      w[d] = sizes.type == Element::f64 ? q * g : static_cast<float>(q) * static_cast<float>(g);
    }
    return w;
  }
};

struct Draw {
  int64_t active;  ///< sites with a gradient
  bool normed = true;
  double logit = 1;  ///< size of the logits
  uint64_t seed = 1;
};

/// Random sources of unequal sizes, so that rho matters; logits are about normal with the deviation asked for.
inline Problem draw_problem(const DepthSizes& sizes, int64_t sites, const Draw& draw) {
  std::mt19937_64 generator(draw.seed);
  const auto normal = [&](int64_t count, double mean, double deviation) {
    std::normal_distribution<double> distribution(mean, deviation);
    std::vector<double> all(count);
    for (double& one : all) one = rounded(sizes.type, distribution(generator));
    return all;
  };
  Problem problem{sizes, sites, {}};
  for (int64_t r = 0; r < sites; ++r) {
    problem.input.sources.push_back(normal(sizes.values(), 0, std::ldexp(0.5, static_cast<int>(r % 4))));
    problem.input.queries.push_back(normal(sizes.width, 0, draw.logit / std::sqrt(double(sizes.channels()))));
    problem.input.gains.push_back(normal(sizes.width, 1, 0.1));
    if (draw.normed) problem.input.norm_weights.push_back(normal(sizes.width, 1, 0.2));
    if (r < draw.active) problem.input.output_gradients.push_back(normal(sizes.values(), 0, 1));
  }
  return problem;
}

inline void expect_done(Device& device, int status) {
  EXPECT_EQ(status, 0);
  EXPECT_EQ(device.finish(), 0);
}

/// What one run wrote, site by site. Equal means the same bits.
struct Outcome {
  std::vector<Values> mixes, outputs, lse, mix_gradients, source_gradients, key_gradients, norm_gradients;
  bool operator==(const Outcome&) const = default;
};

/// All sites forward, then back from the last one with a gradient; what has not been written yet is NaN.
inline Outcome run_history(const DepthKernels& kernels, Device& device, const Problem& problem, const DepthPlan& plan) {
  const DepthSizes& z = problem.sizes;
  const Element type = z.type, statistic = statistic_type(type);
  const int64_t P = z.tokens, D = z.width, H = z.heads, R = problem.sites, A = problem.active();
  const int64_t value = z.value_bytes(), head = P * H * z.statistic_bytes(), row = D * z.statistic_bytes();
  const int64_t token = P * z.statistic_bytes(), narrow = D * bytes_of(type);
  const int64_t longest = A ? *std::max_element(plan.backward.begin(), plan.backward.end()) : 0;
  const bool normed = !problem.input.norm_weights.empty();

  Memory sources(device, R * value), mixes(device, R * value), rho(device, R * token), lse(device, R * head);
  Memory norm_rho(device, R * token), keys(device, R * row), weights(device, R * narrow), output(device, value);
  Memory deltas(device, A * head), through_rho(device, longest * head), key_gradients(device, A * row);
  Memory norm_gradients(device, A * row), dy(device, value), ds(device, value);
  Memory scratch(device, A ? kernels.scratch_bytes(z, A, longest) : 0);
  for (int64_t r = 0; r < R; ++r) {
    keys.write(Values(statistic, r ? problem.key(r) : std::vector<double>(D)), r * row);
    if (normed) weights.write(Values(type, problem.input.norm_weights[r]), r * narrow);
  }
  DepthMemory memory{sources.at(), mixes.at(), rho.at(), lse.at(), norm_rho.at(), keys.at()};
  memory.deltas = deltas.at(), memory.through_rho = through_rho.at(), memory.scratch = scratch.at();
  memory.key_gradients = key_gradients.at(), memory.norm_gradients = norm_gradients.at();

  Outcome outcome;
  for (int64_t r = 0; r < R; ++r) {
    sources.write(Values(type, problem.input.sources[r]), r * value);
    output.poison(0, value);
    DepthNorm norm;
    if (normed) norm.weight = weights.at(r * narrow), norm.output = output.at();
    expect_done(device, depth_forward({&kernels, z, R, plan}, memory, r, norm, device.queue));
    outcome.mixes.push_back(mixes.read(type, P * D, r * value));
    outcome.lse.push_back(lse.read(statistic, P * H, r * head));
    if (normed) outcome.outputs.push_back(output.read(type, P * D));
  }
  sources.poison(A * value, (R - A) * value);
  mixes.poison(A * value, (R - A) * value);
  rho.poison(A * token, (R - A) * token);
  lse.poison(A * head, (R - A) * head);
  outcome.mix_gradients.resize(A);
  outcome.source_gradients.resize(A);
  for (int64_t r = A - 1; r >= 0; --r) {
    dy.write(Values(type, problem.input.output_gradients[r]), 0);
    ds.poison(0, value);
    const SiteGradient gradient{dy.at(), normed ? weights.at(r * narrow) : nullptr, ds.at()};
    expect_done(device, depth_backward({&kernels, z, A, plan}, memory, r, gradient, device.queue));
    outcome.mix_gradients[r] = mixes.read(type, P * D, r * value);
    outcome.source_gradients[r] = ds.read(type, P * D);
  }
  for (int64_t r = 0; r < A && P > 0; ++r) {
    outcome.key_gradients.push_back(key_gradients.read(statistic, D, r * row));
    if (normed) outcome.norm_gradients.push_back(norm_gradients.read(statistic, D, r * row));
  }
  return outcome;
}

/// The plan with chunks of one length forward and another backward.
inline DepthPlan plan_of(const DepthKernels& kernels, const Problem& problem, int64_t forward, int64_t backward) {
  const auto plan = [&](int64_t sites, int64_t chunk) {
    return plan_depth(kernels, problem.sizes, sites, {}, std::min<int64_t>(chunk, kernels.longest_chunk));
  };
  DepthPlan result{plan(problem.sites, forward).forward, {}};
  if (problem.active()) result.backward = plan(problem.active(), backward).backward;
  return result;
}

inline double largest(const std::vector<double>& all) {
  double most = 0;
  for (const double one : all) most = std::max(most, std::abs(one));
  return most;
}
inline double largest(const std::vector<std::vector<double>>& all) {
  double most = 0;
  for (const auto& one : all) most = std::max(most, largest(one));
  return most;
}

/// Style page, point 4: error against fp64 at most twice that of plain loops with fp32 sums and storage-type stores,
/// plus one ulp of the storage type, in the max norm; the ulp is that of an output's largest exact value over all
/// sites. Of few numbers both maxima are luck, so draws are added up before they are compared. With fp64 storage the
/// loops are the exact values themselves, and 1e-12 of the largest one is allowed.
class Measured {
 public:
  /// `cancelled`: the size of numbers whose difference the output is made of, where that can be far above its own.
  template <typename Got, typename Loops>
  void add(Element type, double largest, const Got& got, const Loops& loops, const std::vector<double>& exact,
           double cancelled = 0) {
    unit_ = std::max(unit_, type == Element::f64 ? 1e-12 * std::max(largest, 1e-3 * cancelled)
                                                 : std::max(ulp(type, largest), ulp(Element::f32, cancelled)));
    for (size_t i = 0; i < exact.size(); ++i) {
      error_ = worse(std::abs(got(i) - exact[i]), error_);
      loops_ = std::max(loops_, std::abs(static_cast<double>(loops[i]) - exact[i]));
    }
  }
  bool holds() const { return error_ <= 2 * loops_ + unit_; }
  void expect(const std::string& what) const {
    EXPECT_TRUE(holds()) << what << ": error " << error_ / unit_ << ", plain loops " << loops_ / unit_ << " ulp";
  }

 private:
  static double worse(double a, double b) { return std::isnan(a) || a >= b ? a : b; }  // a NaN wins
  double error_ = 0, loops_ = 0, unit_ = 0;
};

/// da of Eq. 5 is a difference of two dot products. Where a softmax is saturated or has one source it is zero but for
/// their rounding, and the gradients that it is a factor of are known no better: an ulp of fp32 at the size of what
/// cancels.
struct Cancelled {
  double source = 0, query = 0;
  Cancelled(const Problem& problem, double mix_gradient) {
    const auto& in = problem.input;
    const int64_t P = problem.sizes.tokens, D = problem.sizes.width;
    double key = 0;  // the largest element of a normalised key, rho * s
    for (const auto& s : in.sources) {
      for (int64_t p = 0; p < P; ++p) {
        double squares = 0, most = 0;
        for (int64_t d = p * D; d < (p + 1) * D; ++d) squares += s[d] * s[d], most = std::max(most, std::abs(s[d]));
        key = std::max(key, most / std::sqrt(squares / static_cast<double>(D) + problem.sizes.eps));
      }
    }
    double w = 0;
    for (size_t r = 0; r < in.queries.size(); ++r) {
      for (size_t d = 0; d < in.queries[r].size(); ++d) w = std::max(w, std::abs(in.queries[r][d] * in.gains[r][d]));
    }
    const double dots = std::sqrt(static_cast<double>(problem.sizes.channels())) * mix_gradient * largest(in.sources);
    source = dots * w;
    query = dots * key * largest(in.gains) * std::sqrt(static_cast<double>(P));
  }
};

/// Collects outcomes against the reference, output by output.
class Comparison {
 public:
  void add(const Problem& problem, const Outcome& outcome) {
    const auto exact = reference::depth_history<double>(problem.reference_sizes(), problem.input);
    if (problem.sizes.type == Element::f64) {
      compare(problem, outcome, exact, exact);
    } else {
      const Element type = problem.sizes.type;
      const auto store = [type](float value) { return static_cast<float>(rounded(type, value)); };
      compare(problem, outcome, exact,
              reference::depth_history<float>(problem.reference_sizes(), narrow(problem), store));
    }
  }
  bool holds() const {
    for (const auto& [name, measured] : all())
      if (!measured->holds()) return false;
    return true;
  }
  void expect(const std::string& what) const {
    for (const auto& [name, measured] : all()) measured->expect(what + ": " + name);
  }

 private:
  static reference::DepthHistoryInput<float> narrow(const Problem& problem) {
    const auto all = [](const std::vector<std::vector<double>>& from) {
      std::vector<std::vector<float>> to;
      for (const auto& one : from) to.emplace_back(one.begin(), one.end());
      return to;
    };
    const auto& in = problem.input;
    return {all(in.sources), all(in.queries), all(in.gains), all(in.norm_weights), all(in.output_gradients)};
  }

  template <typename T>
  void compare(const Problem& problem, const Outcome& outcome, const reference::DepthHistory<double>& exact,
               const reference::DepthHistory<T>& loops) {
    const Element type = problem.sizes.type;
    const Cancelled cancelled(problem, largest(exact.mix_gradients));
    const auto each = [&](Measured& measured, const std::vector<Values>& got, const std::vector<std::vector<T>>& plain,
                          const std::vector<std::vector<double>>& right, size_t first = 0, double part = 0) {
      ASSERT_EQ(got.size(), right.size());
      const double most = largest(right);
      for (size_t r = first; r < right.size(); ++r) {
        ASSERT_EQ(got[r].count(), static_cast<int64_t>(right[r].size()));
        measured.add(
            type, most, [&](size_t i) { return got[r].at(i); }, plain[r], right[r], part);
      }
    };
    each(mix_, outcome.mixes, loops.mixes, exact.mixes);
    each(output_, outcome.outputs, loops.outputs, exact.outputs);
    each(lse_, outcome.lse, loops.lse, exact.lse, 1);  // the key of site 0 counts as 0
    each(mix_gradient_, outcome.mix_gradients, loops.mix_gradients, exact.mix_gradients);
    each(source_gradient_, outcome.source_gradients, loops.source_gradients, exact.source_gradients, 0,
         cancelled.source);
    if (problem.sizes.tokens == 0) return;  // nothing runs, so nothing sets the sums to zero
    each(norm_gradient_, outcome.norm_gradients, loops.norm_gradients, exact.norm_gradients);
    for (int64_t r = 1; r < problem.active(); ++r) {  // dq = g * dw, Eq. 8; row 0 of dw is to be ignored
      const auto dq = [&](size_t d) { return outcome.key_gradients[r].at(d) * problem.input.gains[r][d]; };
      query_gradient_.add(type, largest(exact.query_gradients), dq, loops.query_gradients[r], exact.query_gradients[r],
                          cancelled.query);
    }
  }

  std::vector<std::pair<std::string, const Measured*>> all() const {
    return {{"o", &mix_},
            {"y", &output_},
            {"lse", &lse_},
            {"dO", &mix_gradient_},
            {"ds", &source_gradient_},
            {"dq", &query_gradient_},
            {"d(norm weight)", &norm_gradient_}};
  }

  Measured mix_, output_, lse_, mix_gradient_, source_gradient_, query_gradient_, norm_gradient_;
};

}  // namespace mhar::kernels
