#pragma once
// Rows that hold every value of each list together with every value of each other list at least once.
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace mhar::kernels {

template <size_t Factors>
class PairTable {
 public:
  using Row = std::array<int, Factors>;  ///< an index into each list; -1: not chosen yet

  /// `cost` of a partly chosen row is a lower bound, negative where its values cannot go together.
  PairTable(const std::array<int, Factors>& lengths, const std::function<double(const Row&)>& cost, double most)
      : lengths_(lengths), cost_(cost), most_(most) {
    for (size_t a = 0; a < Factors; ++a)
      for (size_t b = 0; b < a; ++b) covered_[a][b].assign(lengths[a] * lengths[b], false);
    each_pair([&](size_t a, int i, size_t b, int j) {
      Row row;
      row.fill(-1);
      row[a] = i, row[b] = j;
      if (!possible(row)) {
        impossible_.push_back(row);
      } else if (!covered_[a][b][i * lengths_[b] + j]) {
        complete(row);
      }
    });
  }

  const std::vector<Row>& rows() const { return rows_; }
  const std::vector<Row>& impossible() const { return impossible_; }

  /// How many pairs no row holds, counted afresh.
  int64_t missing() const {
    int64_t count = 0;
    each_pair([&](size_t a, int i, size_t b, int j) {
      bool found = false;
      for (const Row& row : rows_) found = found || (row[a] == i && row[b] == j);
      count += !found;
    });
    return count;
  }

 private:
  template <typename Body>
  void each_pair(const Body& body) const {
    for (size_t a = 0; a < Factors; ++a)
      for (size_t b = 0; b < a; ++b)
        for (int i = 0; i < lengths_[a]; ++i)
          for (int j = 0; j < lengths_[b]; ++j) body(a, i, b, j);
  }
  bool possible(const Row& row) const {
    const double cost = cost_(row);
    return cost >= 0 && cost <= most_;
  }
  // Lists in order: the value that adds most new pairs to those chosen so far, among equals the cheapest.
  void complete(Row row) {
    for (size_t f = 0; f < Factors; ++f) {
      if (row[f] >= 0) continue;
      Row best = row;
      std::pair<int, double> best_worth{-1, 0};
      for (int value = 0; value < lengths_[f]; ++value) {
        Row candidate = row;
        candidate[f] = value;
        if (!possible(candidate)) continue;
        const std::pair<int, double> worth{new_pairs(candidate, f), -cost_(candidate)};
        if (worth > best_worth) best = candidate, best_worth = worth;
      }
      row = best;
    }
    for (size_t a = 0; a < Factors; ++a)
      for (size_t b = 0; b < a; ++b) covered_[a][b][row[a] * lengths_[b] + row[b]] = true;
    rows_.push_back(row);
  }
  int new_pairs(const Row& row, size_t f) const {
    int count = 0;
    for (size_t other = 0; other < Factors; ++other) {
      if (other == f || row[other] < 0) continue;
      const size_t a = std::max(f, other), b = std::min(f, other);
      count += !covered_[a][b][row[a] * lengths_[b] + row[b]];
    }
    return count;
  }

  std::array<int, Factors> lengths_;
  std::function<double(const Row&)> cost_;
  double most_;
  std::array<std::array<std::vector<bool>, Factors>, Factors> covered_;
  std::vector<Row> rows_, impossible_;
};

}  // namespace mhar::kernels
