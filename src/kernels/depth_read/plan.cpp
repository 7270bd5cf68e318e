#include "kernels/depth_read/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace mhar::kernels {
namespace {

struct Cost {
  int64_t bytes = 0, cost = 0;
  void near(int64_t moved, const DepthCosts& costs) { bytes += moved, cost += moved + costs.near; }
  void far(int64_t moved, const DepthCosts& costs) { bytes += moved, cost += moved + costs.far; }
};

Cost forward_chunk(bool finishes, const DepthBytes& u, int64_t first, int64_t length, const DepthCosts& costs) {
  Cost total;
  const bool far = first > 0;
  const int64_t normed = u.value + u.token;
  if (far) {
    for (int64_t from = 0; from < length; from += kMostFar) {
      const int64_t sites = std::min<int64_t>(kMostFar, length - from), sources = first + finishes;
      total.far(
          sources * (u.value + u.token) + sites * (u.value + u.head + u.width) + (finishes && from == 0 ? normed : 0),
          costs);
    }
  }
  for (int64_t c = far && finishes; c < length; ++c) {
    const int64_t sources = c + 1 - (far && finishes);
    const int64_t parts = far ? u.value + u.head : 0;
    total.near(sources * (u.value + u.token) + parts + u.value + u.head + u.width + normed, costs);
  }
  return total;
}

Cost backward_chunk(const DepthSizes& z, const DepthBytes& u, int64_t first, int64_t length, int64_t sites,
                    const DepthCosts& costs) {
  Cost total;
  const bool far = first + length < sites;
  const int64_t top = first + length - 1, site = 3 * u.value + u.head + u.token, pair = u.head;
  if (far) {
    const int64_t rows = sites - top;
    total.near(site, costs);
    for (int64_t from = 0; from < length; from += kMostFar) {
      const int64_t columns = std::min<int64_t>(kMostFar, length - from);
      total.far(
          rows * (u.value + 2 * u.head + u.width) + columns * (2 * u.value + u.token + u.head) + rows * columns * pair,
          costs);
    }
    total.near(3 * u.value + u.token + u.head, costs);
  }
  for (int64_t i = first; i < first + length - far; ++i) {
    const int64_t near_sites = (far ? top : first + length) - i;
    total.near(site + 2 * u.value + u.token + (far ? u.value + u.head : 0) + (near_sites - 1) * u.value +
                   near_sites * (2 * u.head + u.width + pair),
               costs);
  }
  total.near(length * u.value + (sites - first) * (length * pair + 2 * z.width * z.statistic_bytes()), costs);
  return total;
}

// Least total cost over all ways to cut [0, sites): best[k] is the cost of the first k.
template <typename ChunkCost, typename Allowed>
std::vector<int64_t> cut(int64_t sites, int64_t longest, const ChunkCost& cost, const Allowed& allowed) {
  constexpr int64_t none = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> best(sites + 1, none), last(sites + 1, 0);
  best[0] = 0;
  for (int64_t end = 1; end <= sites; ++end) {
    for (int64_t length = 1; length <= std::min(longest, end); ++length) {
      const int64_t first = end - length;
      if (best[first] == none || !allowed(first, length)) continue;
      const int64_t total = best[first] + cost(first, length);
      if (total < best[end]) best[end] = total, last[end] = length;
    }
  }
  std::vector<int64_t> lengths;
  for (int64_t end = sites; end > 0; end -= last[end]) lengths.push_back(last[end]);
  std::reverse(lengths.begin(), lengths.end());
  return lengths;
}

bool room(int64_t first, int64_t length, int64_t sites) {
  return first + length == sites || length <= sites - first - length;
}

// Chunks of one length, the rest at the end that is processed first. Only a single longer piece could lack room.
std::vector<int64_t> uniform(int64_t sites, int64_t chunk, bool backward) {
  std::vector<int64_t> lengths(sites / chunk, chunk);
  if (const int64_t rest = sites % chunk) lengths.insert(backward ? lengths.begin() : lengths.end(), rest);
  return lengths;
}

}  // namespace

bool fits(const DepthKernels& kernels, const DepthPlan& plan, int64_t sites) {
  for (const auto* lengths : {&plan.forward, &plan.backward}) {
    int64_t first = 0;
    for (const int64_t length : *lengths) {
      if (length < 1 || length > kernels.longest_chunk) return false;
      if (lengths == &plan.backward && !room(first, length, sites)) return false;
      first += length;
    }
    if (first != sites) return false;
  }
  return true;
}

DepthPlan plan_depth(const DepthKernels& kernels, const DepthSizes& sizes, int64_t sites, const DepthCosts& costs,
                     int64_t chunk) {
  const DepthBytes u(sizes);
  if (chunk > 0) {
    chunk = std::min<int64_t>(chunk, kernels.longest_chunk);
    return {uniform(sites, chunk, false), uniform(sites, chunk, true)};
  }
  return {
      cut(
          sites, kernels.longest_chunk,
          [&](int64_t first, int64_t length) { return forward_chunk(kernels.finishes, u, first, length, costs).cost; },
          [](int64_t, int64_t) { return true; }),
      cut(
          sites, kernels.longest_chunk,
          [&](int64_t first, int64_t length) { return backward_chunk(sizes, u, first, length, sites, costs).cost; },
          [&](int64_t first, int64_t length) { return room(first, length, sites); })};
}

int64_t depth_forward_bytes(const DepthKernels& kernels, const DepthSizes& sizes, const DepthPlan& plan) {
  int64_t first = 0, bytes = 0;
  for (const int64_t length : plan.forward) {
    bytes += forward_chunk(kernels.finishes, DepthBytes(sizes), first, length, {}).bytes;
    first += length;
  }
  return bytes;
}

int64_t depth_backward_bytes(const DepthKernels&, const DepthSizes& sizes, const DepthPlan& plan) {
  const int64_t sites = std::accumulate(plan.backward.begin(), plan.backward.end(), int64_t{0});
  int64_t first = 0, bytes = 0;
  for (const int64_t length : plan.backward) {
    bytes += backward_chunk(sizes, DepthBytes(sizes), first, length, sites, {}).bytes;
    first += length;
  }
  return bytes;
}

}  // namespace mhar::kernels
