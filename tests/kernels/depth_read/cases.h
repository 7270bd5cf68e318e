#pragma once
// Histories that every implementation of the depth read must get right, against the reference.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "kernels/depth_read/harness.h"
#include "kernels/depth_read/pairs.h"

namespace mhar::kernels {

/// An implementation on its device. Shapes that it refuses are left out; the tests count what is left.
struct Subject {
  const DepthKernels& kernels;
  Device& device;
  std::vector<Element> types;

  bool takes(const DepthSizes& sizes, int64_t sites) const { return kernels.refuses(sizes, sites) == nullptr; }
  Outcome run(const Problem& problem, int64_t forward, int64_t backward) const {
    return run_history(kernels, device, problem, plan_of(kernels, problem, forward, backward));
  }
};

inline std::string describe(const DepthSizes& z, int64_t sites, int64_t forward, int64_t backward) {
  return std::string(name_of(z.type)) + ", N " + std::to_string(sites) + ", P " + std::to_string(z.tokens) + ", D " +
         std::to_string(z.width) + ", H " + std::to_string(z.heads) + ", chunks " + std::to_string(forward) + " and " +
         std::to_string(backward);
}

/// A draw, and more, all of them added up, as long as what they have shown could be luck: where two logits nearly tie,
/// one rounding decides, and the plain loops may happen to be on the right side of it.
inline void expect_reference(const Subject& subject, const DepthSizes& sizes, int64_t sites, Draw draw, int64_t forward,
                             int64_t backward) {
  Comparison comparison;
  for (int draws = 0; draws < 1 || (draws < 12 && !comparison.holds()); ++draws, ++draw.seed) {
    const Problem problem = draw_problem(sizes, sites, draw);
    comparison.add(problem, subject.run(problem, forward, backward));
  }
  comparison.expect(describe(sizes, sites, forward, backward) + ", logits of " + std::to_string(draw.logit) +
                    ", active " + std::to_string(draw.active));
}

/// Every value of each list together with every value of each other list, but for shapes that are refused. `most`
/// bounds N * N * P * D of a row, which the reference takes time in proportion to.
inline void expect_pairs(const Subject& subject, std::vector<int64_t> widths, double most, size_t least_rows) {
  static const std::vector<int64_t> sites{1, 2, 3, 5, 17, 33, 49, 65, 73, 129}, tokens{0, 1, 7, 31, 33, 257, 300};
  static const std::vector<int64_t> heads{1, 2, 4, 8, 16};
  static const std::vector<double> logits{1, 10, 100, 1e4};
  const auto taken = [&](int64_t D, int64_t H) {
    return D % H == 0 && subject.takes({1, D, H, subject.types[0], 1e-6}, sites.back());
  };
  std::erase_if(widths, [&](int64_t D) {
    return std::none_of(heads.begin(), heads.end(), [&](int64_t H) { return taken(D, H); });
  });
  const int chunks = subject.kernels.longest_chunk, types = static_cast<int>(subject.types.size());
  enum { kForward, kBackward, kSites, kWidth, kTokens, kHeads, kLogit, kType, kNormed, kActive, kFactors };
  const std::array<int, kFactors> lengths{chunks, chunks, 10, static_cast<int>(widths.size()), 7, 5, 4, types, 2, 2};
  using Table = PairTable<kFactors>;
  const auto cost = [&](const Table::Row& row) -> double {
    const int64_t N = sites[std::max(row[kSites], 0)], P = std::max<int64_t>(tokens[std::max(row[kTokens], 0)], 1);
    int64_t least = 0;
    for (size_t w = 0; w < widths.size(); ++w)
      for (size_t h = 0; h < heads.size(); ++h) {
        const bool chosen = (row[kWidth] < 0 || row[kWidth] == static_cast<int>(w)) &&
                            (row[kHeads] < 0 || row[kHeads] == static_cast<int>(h));
        if (chosen && taken(widths[w], heads[h])) least = least ? std::min(least, widths[w]) : widths[w];
      }
    return least ? static_cast<double>(N * N * P * least) : -1;
  };
  const Table table(lengths, cost, most);
  EXPECT_EQ(table.missing(), static_cast<int64_t>(table.impossible().size()));
  for (const Table::Row& row : table.impossible()) EXPECT_EQ(cost(row), -1) << "too dear: raise `most`";
  EXPECT_GE(table.rows().size(), least_rows);
  uint64_t seed = 100;
  for (const Table::Row& row : table.rows()) {
    const int64_t N = sites[row[kSites]];
    const DepthSizes sizes{tokens[row[kTokens]], widths[row[kWidth]], heads[row[kHeads]], subject.types[row[kType]],
                           1e-6};
    const Draw draw{row[kActive] ? N : N - N / 3, row[kNormed] == 0, logits[row[kLogit]], seed += 10};
    expect_reference(subject, sizes, N, draw, 1 + row[kForward], 1 + row[kBackward]);
  }
}

/// All combinations of short lists.
inline void expect_product(const Subject& subject) {
  for (const int64_t N : {1, 2, 3, 6, 9})
    for (const int64_t P : {0, 1, 5, 33})
      for (const auto& [D, H] : std::vector<std::pair<int64_t, int64_t>>{{8, 1}, {24, 3}, {40, 8}, {64, 2}, {160, 1}})
        for (const int64_t chunk : {1, 2, 3, 5, 8, 16})
          for (const Element type : subject.types) {
            const DepthSizes sizes{P, D, H, type, 1e-6};
            if (!subject.takes(sizes, N)) continue;
            const Draw draw{N, chunk % 2 == 1, 3, static_cast<uint64_t>(N * 1000 + P * 100 + D)};
            expect_reference(subject, sizes, N, draw, chunk, chunk);
          }
}

/// Field case 9: one history reads every number of sources on the way.
inline void expect_every_number_of_sources(const Subject& subject, const std::vector<int64_t>& token_counts) {
  for (const Element type : subject.types)
    for (const int64_t D : {512, 1024, 1280, 4096})
      for (const int64_t P : token_counts) {
        const DepthSizes sizes{P, D, 8, type, 1e-6};
        if (subject.takes(sizes, 73)) expect_reference(subject, sizes, 73, {73, true, 2, 9}, 8, 8);
      }
}

/// Any plan gives the same within the rule: lengths drawn at random, and the planner's own.
inline void expect_any_plan(const Subject& subject) {
  std::mt19937_64 generator(3);
  const auto lengths = [&](int64_t sites) {
    std::vector<int64_t> all;
    for (int64_t left = sites; left > 0; left -= all.back())
      all.push_back(std::min<int64_t>(left, 1 + static_cast<int64_t>(generator() % subject.kernels.longest_chunk)));
    return all;
  };
  for (const Element type : subject.types) {
    const DepthSizes sizes{9, 64, 2, type, 1e-6};
    if (!subject.takes(sizes, 37)) continue;
    std::vector<DepthPlan> plans{plan_depth(subject.kernels, sizes, 37, {}),
                                 plan_depth(subject.kernels, sizes, 37, kGpuDepthCosts)};
    while (plans.size() < 12) {
      const DepthPlan plan{lengths(37), lengths(37)};
      if (fits(subject.kernels, plan, 37)) plans.push_back(plan);
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      Comparison comparison;
      for (uint64_t seed = 21; seed < 23 || (seed < 33 && !comparison.holds()); ++seed) {
        const Problem problem = draw_problem(sizes, 37, {37, true, 4, seed});
        comparison.add(problem, run_history(subject.kernels, subject.device, problem, plans[i]));
      }
      comparison.expect(std::string(name_of(type)) + ", plan " + std::to_string(i));
    }
  }
}

/// Field case 34 and the style page: the same bits whenever it runs; every buffer is poisoned anew.
inline void expect_same_bits(const Subject& subject, const DepthSizes& sizes, int64_t sites, int repetitions) {
  const Problem problem = draw_problem(sizes, sites, {sites, true, 3, 5});
  const Outcome first = subject.run(problem, 5, 4);
  for (int i = 1; i < repetitions; ++i) ASSERT_TRUE(subject.run(problem, 5, 4) == first) << "repetition " << i;
}

}  // namespace mhar::kernels
