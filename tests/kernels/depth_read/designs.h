#pragma once
// Pass by pass what designs other than Eq. 33 ask of an implementation: sites and sources that differ in number.
#include "kernels/depth_read/cases.h"

namespace mhar::kernels {

using Rows = std::vector<std::vector<double>>;

inline Values joined(Element type, const Rows& rows) {
  std::vector<double> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return {type, all};
}

/// rho of each source, in the type of statistics, as an earlier pass has left it.
inline Values rho_of(const DepthSizes& z, const Rows& sources) {
  Values rho(statistic_type(z.type), static_cast<int64_t>(sources.size()) * z.tokens);
  for (int64_t row = 0; row < rho.count(); ++row) {
    double squares = 0;
    for (int64_t d = 0; d < z.width; ++d) {
      const double s = sources[row / z.tokens][row % z.tokens * z.width + d];
      squares += s * s;
    }
    rho.set(row, 1 / std::sqrt(squares / static_cast<double>(z.width) + z.eps));
  }
  return rho;
}

/// Sites that each read sources of their own choice: mixes, and every site's share of the gradients.
template <typename T>
struct Reads {
  std::vector<std::vector<T>> mixes, queries;
  std::vector<std::vector<std::vector<T>>> shares;  ///< [site][place in its list]

  template <typename Store>
  Reads(const Problem& problem, const std::vector<std::vector<int>>& lists, const Store& store) {
    const auto as = [](const std::vector<double>& all) { return std::vector<T>(all.begin(), all.end()); };
    for (size_t r = 0; r < lists.size(); ++r) {
      const DepthSizes& z = problem.sizes;
      const reference::DepthReadSizes sizes{static_cast<int64_t>(lists[r].size()), z.tokens, z.width, z.heads, z.eps};
      std::vector<std::vector<T>> sources;
      for (const int i : lists[r]) sources.push_back(as(problem.input.sources[i]));
      const std::vector<T> q = as(problem.input.queries[r]), g = as(problem.input.gains[r]);
      auto read = reference::depth_read<T>(sizes, sources, q, g);
      for (T& o : read.output) o = store(o);
      reference::weigh_again(read, reference::log_denominators(sizes, read));
      const std::vector<T> dO = as(problem.input.output_gradients[r]);
      auto gradients = reference::depth_read_backward<T>(sizes, sources, q, g, read, dO);
      mixes.push_back(std::move(read.output));
      queries.push_back(std::move(gradients.query));
      shares.push_back(std::move(gradients.sources));
    }
  }
};

/// `finished` sources that all T rows read through far passes, whatever else the rows read.
class FarPart {
 public:
  FarPart(const Subject& subject, const Problem& problem, int64_t finished, int64_t rows)
      : subject_(subject),
        problem_(problem),
        m_(finished),
        T_(rows),
        value_(problem.sizes.value_bytes()),
        head_(problem.sizes.tokens * problem.sizes.heads * problem.sizes.statistic_bytes()),
        row_(problem.sizes.width * problem.sizes.statistic_bytes()),
        sources_(subject.device, joined(problem.sizes.type, first(problem, finished))),
        rho_(subject.device, rho_of(problem.sizes, first(problem, finished))),
        keys(subject.device, T_ * row_),
        mixes(subject.device, T_ * value_),
        lse(subject.device, T_ * head_),
        deltas(subject.device, T_ * head_) {
    for (int64_t t = 0; t < T_; ++t) keys.write(Values(statistic(), problem.key(t)), t * row_);
  }

  Element statistic() const { return statistic_type(problem_.sizes.type); }

  void forward() {
    FarForward pass{};
    pass.sources = sources_.at(), pass.count = m_, pass.rho = rho_.at();
    pass.keys = keys.at(), pass.sites = T_, pass.mixes = mixes.at(), pass.lse = lse.at();
    expect_done(subject_.device, subject_.kernels.far_forward(problem_.sizes, pass, subject_.device.queue));
  }

  /// Gradients of the finished sources; adds their part of dw to `dw`, one row for each of the T.
  std::vector<Values> backward(Rows& dw) {
    const DepthSizes& z = problem_.sizes;
    const DepthKernels& kernels = subject_.kernels;
    Device& device = subject_.device;
    const int64_t R = m_ - 1 + T_;
    Memory scratch(device, kernels.scratch_bytes(z, R, m_)), partials(device, m_ * value_), through(device, m_ * head_);
    Memory key_gradients(device, Values(statistic(), R * z.width));
    const BackwardChunk chunk{0, m_, m_ - 1, R, scratch.at()};
    FarBackward far{};
    far.sources = sources_.at(), far.rho = rho_.at(), far.count = m_;
    far.keys = keys.at(), far.mix_gradients = mixes.at(), far.lse = lse.at(), far.deltas = deltas.at();
    far.partials = partials.at(), far.through_rho = through.at();
    expect_done(device, kernels.far_backward(z, chunk, far, device.queue));
    std::vector<Values> gradients(m_);
    for (int64_t i = m_ - 1; i >= 0; --i) {
      NearBackward near{};
      near.source = sources_.at(i * value_), near.rho = rho_.at(i * z.tokens * z.statistic_bytes()), near.index = i;
      near.partial = near.source_gradient = partials.at(i * value_);
      near.through_rho = through.at(i * head_);
      expect_done(device, kernels.near_backward(z, chunk, near, device.queue));
      gradients[i] = partials.read(z.type, z.values(), i * value_);
    }
    ChunkGradients sums{};
    sums.sources = sources_.at(), sums.key_gradients = key_gradients.at();
    expect_done(device, kernels.chunk_gradients(z, chunk, sums, device.queue));
    for (int64_t t = 0; t < T_; ++t) {
      const Values row = key_gradients.read(statistic(), z.width, (m_ - 1 + t) * row_);
      for (int64_t d = 0; d < z.width; ++d) dw[t][d] += row.at(d);
    }
    return gradients;
  }

 private:
  static Rows first(const Problem& problem, int64_t count) {
    return {problem.input.sources.begin(), problem.input.sources.begin() + count};
  }
  const Subject& subject_;
  const Problem& problem_;
  int64_t m_, T_, value_, head_, row_;
  Memory sources_, rho_;

 public:
  Memory keys, mixes, lse, deltas;  ///< of the T rows
};

/// Mixes, dw and gradients against reads of the same lists, over several draws.
class ReadsComparison {
 public:
  /// gradient(reads, i) is what got[i] should be.
  template <typename Gradient>
  void add(const Problem& problem, const std::vector<std::vector<int>>& lists, const std::vector<Values>& mixes,
           const Rows& dw, const std::vector<Values>& got, const Gradient& gradient) {
    const Element type = problem.sizes.type;
    const Reads<double> exact(problem, lists, [](double value) { return value; });
    const Cancelled cancelled(problem, largest(problem.input.output_gradients));
    const auto measure = [&](const auto& loops) {
      for (size_t t = 0; t < lists.size(); ++t) {
        const auto mix = [&](size_t i) { return mixes[t].at(i); };
        o_.add(type, largest(exact.mixes), mix, loops.mixes[t], exact.mixes[t]);
        const auto query = [&](size_t d) { return dw[t][d] * problem.input.gains[t][d]; };
        dq_.add(type, largest(exact.queries), query, loops.queries[t], exact.queries[t], cancelled.query);
      }
      for (size_t i = 0; i < got.size(); ++i) {
        const std::vector<double> right = gradient(exact, i);
        const auto source = [&](size_t pd) { return got[i].at(pd); };
        ds_.add(type, largest(right), source, gradient(loops, i), right);
      }
    };
    if (type == Element::f64) {
      measure(exact);
    } else {
      measure(Reads<float>(problem, lists, [type](float value) { return static_cast<float>(rounded(type, value)); }));
    }
  }
  void expect(Element type) const {
    o_.expect(std::string(name_of(type)) + ": o"), dq_.expect(std::string(name_of(type)) + ": dq");
    ds_.expect(std::string(name_of(type)) + ": ds");
  }

 private:
  Measured o_, dq_, ds_;
};

/// a + b; rounded to the storage type in the plain loops, never in the exact values.
template <typename T>
std::vector<T> stored_sum(Element type, std::vector<T> a, const std::vector<T>& b) {
  if (std::is_same_v<T, double>) type = Element::f64;
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<T>(rounded(type, a[i] + b[i]));
  return a;
}

/// Blocks: T sites of one block read the m finished sums and the running sum, of which each site saw another version.
/// A version's gradient includes what the later ones got, because they were made from it.
inline void add_block_sums(const Subject& subject, Element type, int64_t m, uint64_t seed,
                           ReadsComparison& comparison) {
  constexpr int64_t T = 4;
  const DepthSizes z{7, 64, 2, type, 1e-6};
  if (!subject.takes(z, m + T)) return;
  const Problem problem = draw_problem(z, m + T, {m + T, false, 2, seed});
  const int64_t value = z.value_bytes(), head = z.tokens * z.heads * z.statistic_bytes();
  const int64_t row = z.width * z.statistic_bytes(), token = z.tokens * z.statistic_bytes();
  Device& device = subject.device;
  FarPart far(subject, problem, m, T);
  Memory versions(device, T * value), rho(device, T * token);
  std::vector<Values> mixes;
  if (m > 0) far.forward();
  for (int64_t t = 0; t < T; ++t) {
    versions.write(Values(type, problem.input.sources[m + t]), t * value);
    NearForward near{};
    near.sources[0] = versions.at(t * value), near.rho[0] = rho.at(t * token), near.count = 1, near.newest = true;
    near.key = far.keys.at(t * row), near.partial = m > 0;
    near.mix = far.mixes.at(t * value), near.lse = far.lse.at(t * head);
    expect_done(device, subject.kernels.near_forward(z, near, device.queue));
    mixes.push_back(far.mixes.read(type, z.values(), t * value));
  }
  Memory scratch(device, subject.kernels.scratch_bytes(z, T, T)), sum(device, value);
  Memory key_gradients(device, T * row), dO(device, value);
  const BackwardChunk chunk{0, T, T, T, scratch.at()};
  std::vector<Values> gradients(T);
  for (int64_t t = T - 1; t >= 0; --t) {
    dO.write(Values(type, problem.input.output_gradients[t]), 0);
    NearBackward near{};
    near.normed_gradient = dO.at(), near.mix = far.mixes.at(t * value), near.delta = far.deltas.at(t * head);
    near.site = near.index = t;
    near.source = versions.at(t * value), near.rho = rho.at(t * token), near.sites = 1;
    near.keys = far.keys.at(t * row), near.mix_gradients[0] = near.mix;
    near.lse = far.lse.at(t * head), near.deltas = near.delta;
    near.partial = t + 1 < T ? sum.at() : nullptr, near.source_gradient = sum.at();
    expect_done(device, subject.kernels.near_backward(z, chunk, near, device.queue));
    gradients[t] = sum.read(type, z.values());
  }
  ChunkGradients sums{};
  sums.sources = versions.at(), sums.key_gradients = key_gradients.at();
  expect_done(device, subject.kernels.chunk_gradients(z, chunk, sums, device.queue));
  Rows dw;
  for (int64_t t = 0; t < T; ++t) dw.push_back(key_gradients.read(far.statistic(), z.width, t * row).numbers());
  if (m > 0) {
    const auto finished = far.backward(dw);
    gradients.insert(gradients.end(), finished.begin(), finished.end());
  }
  std::vector<std::vector<int>> lists(T);
  for (int t = 0; t < T; ++t) {
    for (int i = 0; i < m; ++i) lists[t].push_back(i);
    lists[t].push_back(static_cast<int>(m) + t);
  }
  comparison.add(problem, lists, mixes, dw, gradients, [&](const auto& reads, size_t i) {
    const bool version = i < T;
    const size_t place = version ? m : i - T, last = version ? i : 0;
    auto total = reads.shares[T - 1][place];
    for (size_t t = T - 1; t-- > last;) total = stored_sum(type, reads.shares[t][place], total);
    return total;
  });
}

inline void expect_block_sums(const Subject& subject, Element type) {
  for (const int64_t m : {0, 1, 5}) {
    ReadsComparison comparison;
    for (uint64_t seed = 31; seed < 39; ++seed) add_block_sums(subject, type, m, seed, comparison);
    comparison.expect(type);
  }
}

/// Several full-width queries at a site: G rows read the same sources, the newest of them through a near pass each.
inline void add_query_rows(const Subject& subject, Element type, uint64_t seed, ReadsComparison& comparison) {
  constexpr int64_t G = 3, N = 5;
  const DepthSizes z{9, 64, 1, type, 1e-6};
  if (!subject.takes(z, N)) return;
  const Problem problem = draw_problem(z, N, {N, false, 2, seed});
  const int64_t value = z.value_bytes(), head = z.tokens * z.statistic_bytes(), row = z.width * z.statistic_bytes();
  Device& device = subject.device;
  FarPart far(subject, problem, N - 1, G);
  Memory newest(device, Values(type, problem.input.sources[N - 1])), rho(device, head);
  far.forward();
  std::vector<Values> mixes;
  for (int64_t g = 0; g < G; ++g) {
    NearForward near{};
    near.sources[0] = newest.at(), near.rho[0] = rho.at(), near.count = 1, near.newest = g == 0;
    near.key = far.keys.at(g * row), near.partial = true;
    near.mix = far.mixes.at(g * value), near.lse = far.lse.at(g * head);
    expect_done(device, subject.kernels.near_forward(z, near, device.queue));
    mixes.push_back(far.mixes.read(type, z.values(), g * value));
  }
  Memory scratch(device, subject.kernels.scratch_bytes(z, G, 1)), dO(device, value), ds(device, value);
  Memory key_gradients(device, Values(far.statistic(), G * z.width));
  const BackwardChunk chunk{0, 1, G, G, scratch.at()};
  NearBackward source{};
  source.source = newest.at(), source.rho = rho.at(), source.sites = G;
  source.keys = far.keys.at(), source.lse = far.lse.at(), source.deltas = far.deltas.at();
  source.source_gradient = ds.at();
  for (int64_t g = 0; g < G; ++g) {
    dO.write(Values(type, problem.input.output_gradients[g]), 0);
    NearBackward site{};
    site.normed_gradient = dO.at(), site.mix = far.mixes.at(g * value), site.delta = far.deltas.at(g * head);
    expect_done(device, subject.kernels.near_backward(z, chunk, site, device.queue));
    source.mix_gradients[g] = site.mix;
  }
  expect_done(device, subject.kernels.near_backward(z, chunk, source, device.queue));
  ChunkGradients sums{};
  sums.sources = newest.at(), sums.key_gradients = key_gradients.at();
  expect_done(device, subject.kernels.chunk_gradients(z, chunk, sums, device.queue));
  Rows dw;
  for (int64_t g = 0; g < G; ++g) dw.push_back(key_gradients.read(far.statistic(), z.width, g * row).numbers());
  std::vector<Values> gradients = far.backward(dw);
  gradients.push_back(ds.read(type, z.values()));
  const std::vector<std::vector<int>> lists(G, {0, 1, 2, 3, 4});
  comparison.add(problem, lists, mixes, dw, gradients, [&](const auto& reads, size_t i) {
    auto total = stored_sum(Element::f64, reads.shares[0][i], reads.shares[1][i]);
    return stored_sum(type, total, reads.shares[2][i]);
  });
}

inline void expect_query_rows(const Subject& subject, Element type) {
  ReadsComparison comparison;
  for (uint64_t seed = 41; seed < 49; ++seed) add_query_rows(subject, type, seed, comparison);
  comparison.expect(type);
}

}  // namespace mhar::kernels
