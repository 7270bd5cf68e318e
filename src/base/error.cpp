#include "base/error.h"

#include <algorithm>
#include <numeric>

namespace mhar {
namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string describe(const Fault& fault) {
  std::string text = fault.operation;
  if (!fault.argument.empty()) text += ": " + fault.argument;
  if (!fault.wanted.empty()) text += ": wanted " + fault.wanted;
  if (!fault.got.empty()) text += (fault.wanted.empty() ? ": got " : ", got ") + fault.got;
  if (!fault.remedy.empty()) text += "; " + fault.remedy;
  return text;
}

std::string closest(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  size_t least = 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    // Two short words with no letter in common are within two edits of each other and still unrelated.
    if (distance < least && distance < std::max(word.size(), candidate.size())) {
      least = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace mhar
