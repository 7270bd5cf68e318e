#pragma once
// A read with a null source and a gated stream, Eq. 42, pass by pass.
#include "kernels/depth_read/designs.h"

namespace mhar::kernels {

struct GatedNumbers {
  Problem problem;  ///< one site that reads all its sources; its norm weight is that of x
  std::vector<double> stream, null_value, null_logits;
  double gate;
};

/// Eq. 38 and 42 behind the reference's read, Eq. 9 and 10 around them.
template <typename T>
struct GatedRead {
  std::vector<T> mix, lse, output, stream_gradient, gate_products, mix_gradient;
  std::vector<std::vector<T>> sources;  ///< gradients

  template <typename Store>
  GatedRead(const GatedNumbers& in, const Store& store) {
    const auto as = [](const std::vector<double>& all) { return std::vector<T>(all.begin(), all.end()); };
    const auto stored = [&](std::vector<T> all) {
      for (T& one : all) one = store(one);
      return all;
    };
    const DepthSizes& z = in.problem.sizes;
    const int64_t N = in.problem.sites, P = z.tokens, D = z.width, H = z.heads;
    std::vector<std::vector<T>> s;
    for (const auto& source : in.problem.input.sources) s.push_back(as(source));
    const std::vector<T> q = as(in.problem.input.queries[0]), g = as(in.problem.input.gains[0]);
    const reference::DepthReadSizes sizes{N, P, D, H, z.eps};
    auto read = reference::depth_read<T>(sizes, s, q, g);
    lse.resize(P * H);
    for (int64_t ph = 0; ph < P * H; ++ph) {
      const T null = static_cast<T>(in.null_logits[ph % H]);
      T most = null, total = 0;
      for (int64_t i = 0; i < N; ++i) most = std::max(most, read.logits[i * P * H + ph]);
      for (int64_t i = 0; i < N; ++i) total += std::exp(read.logits[i * P * H + ph] - most);
      lse[ph] = most + std::log(total + std::exp(null - most));
      const T share = total / (total + std::exp(null - most)), weight = std::exp(null - most) * share / total;
      for (int64_t k = 0; k < z.channels(); ++k) {
        const int64_t d = ph % H * z.channels() + k;
        T& o = read.output[ph / H * D + d];
        o = store(share * o + weight * static_cast<T>(in.null_value[d]));
      }
    }
    reference::weigh_again(read, lse);
    mix = read.output;
    std::vector<T> x = as(in.stream), ones(D, T(1));
    const std::vector<T> weights = as(in.problem.input.norm_weights[0]);
    for (int64_t pd = 0; pd < P * D; ++pd) x[pd] = store(x[pd] + static_cast<T>(in.gate) * mix[pd]);
    const reference::RmsNormSizes rows{P, D, z.eps};
    const auto norm = reference::rms_norm<T>(rows, x, ones);
    output = stored(norm.output);
    for (int64_t pd = 0; pd < P * D; ++pd) output[pd] = store(weights[pd % D] * output[pd]);
    const std::vector<T> dy = as(in.problem.input.output_gradients[0]);
    stream_gradient = reference::rms_norm_backward<T>(rows, x, weights, norm, dy).x;
    gate_products.resize(P);
    mix_gradient = stream_gradient;
    for (int64_t pd = 0; pd < P * D; ++pd) {
      gate_products[pd / D] += stream_gradient[pd] * mix[pd];
      mix_gradient[pd] = store(static_cast<T>(in.gate) * stream_gradient[pd]);
    }
    stream_gradient = stored(std::move(stream_gradient));
    sources = reference::depth_read_backward<T>(sizes, s, q, g, read, mix_gradient).sources;
    for (auto& ds : sources) ds = stored(std::move(ds));
  }
};

struct GatedBuffers {
  Memory sources, rho, key, mix, lse, null_logits, null_value, stream, gate, weight, output, norm_rho;

  GatedBuffers(Device& device, const GatedNumbers& in)
      : GatedBuffers(device, in, in.problem.sizes, statistic_type(in.problem.sizes.type)) {}
  GatedBuffers(Device& device, const GatedNumbers& in, const DepthSizes& z, Element statistic)
      : sources(device, joined(z.type, in.problem.input.sources)),
        rho(device, rho_of(z, in.problem.input.sources)),
        key(device, Values(statistic, in.problem.key(0))),
        mix(device, z.value_bytes()),
        lse(device, z.tokens * z.heads * z.statistic_bytes()),
        null_logits(device, Values(statistic, in.null_logits)),
        null_value(device, Values(z.type, in.null_value)),
        stream(device, Values(z.type, in.stream)),
        gate(device, Values(statistic, std::vector<double>{in.gate})),
        weight(device, Values(z.type, in.problem.input.norm_weights[0])),
        output(device, z.value_bytes()),
        norm_rho(device, z.tokens * z.statistic_bytes()) {}

  DepthNorm norm() const { return {weight.at(), output.at(), norm_rho.at()}; }

  /// The first `far` sources through a far pass, the others through the near pass.
  void forward(const Subject& subject, const Problem& problem, int64_t far) const {
    const DepthSizes& z = problem.sizes;
    if (far > 0) {
      FarForward pass{};
      pass.sources = sources.at(), pass.count = far, pass.rho = rho.at();
      pass.keys = key.at(), pass.sites = 1, pass.mixes = mix.at(), pass.lse = lse.at();
      expect_done(subject.device, subject.kernels.far_forward(z, pass, subject.device.queue));
    }
    NearForward pass{};
    for (int64_t i = far; i < problem.sites; ++i) {
      pass.sources[pass.count] = sources.at(i * z.value_bytes());
      pass.rho[pass.count++] = rho.at(i * z.tokens * z.statistic_bytes());
    }
    pass.key = key.at(), pass.partial = far > 0, pass.mix = mix.at(), pass.lse = lse.at();
    pass.null_logits = null_logits.at(), pass.null_value = null_value.at();
    pass.stream = stream.at(), pass.gate = gate.at(), pass.norm = norm();
    expect_done(subject.device, subject.kernels.near_forward(z, pass, subject.device.queue));
  }
};

inline GatedNumbers draw_gated(const DepthSizes& z, int64_t sources, double gate, uint64_t seed = 51) {
  GatedNumbers in{draw_problem(z, sources, {1, true, 2, seed}), {}, {}, {}, gate};
  const Problem other = draw_problem({z.tokens, z.width, z.heads, z.type, z.eps}, 2, {0, false, 2, seed + 100});
  in.stream = other.input.sources[1], in.null_value = other.input.queries[0];
  for (int64_t h = 0; h < z.heads; ++h) in.null_logits.push_back(static_cast<float>(0.7 * static_cast<double>(h) - 1));
  return in;
}

/// Forward and backward, with the sources far or near; backward as one chunk of near sources, one site each.
inline void add_gated_read(const Subject& subject, const GatedNumbers& in, int64_t far,
                           std::map<std::string, Measured>& all) {
  const DepthSizes& z = in.problem.sizes;
  const Element type = z.type;
  const int64_t N = in.problem.sites;
  Device& device = subject.device;
  const GatedBuffers buffers(device, in);
  buffers.forward(subject, in.problem, far);
  const Element statistic = statistic_type(type);
  const Values mix = buffers.mix.read(type, z.values()), lse = buffers.lse.read(statistic, z.tokens * z.heads);
  Memory dy(device, Values(type, in.problem.input.output_gradients[0])), dh(device, z.value_bytes());
  Memory products(device, z.tokens * z.statistic_bytes()), ds(device, z.value_bytes());
  Memory delta(device, z.tokens * z.heads * z.statistic_bytes());
  Memory scratch(device, subject.kernels.scratch_bytes(z, N, N));
  const BackwardChunk chunk{0, N, N, N, scratch.at()};
  std::vector<Values> gradients(N);
  for (int64_t i = N - 1; i >= 0; --i) {
    NearBackward near{};
    if (i == N - 1) {
      near.normed_gradient = dy.at(), near.norm_weight = buffers.weight.at(), near.norm_rho = buffers.norm_rho.at();
      near.mix = buffers.mix.at(), near.delta = delta.at(), near.site = i;
      near.stream = buffers.stream.at(), near.gate = buffers.gate.at();
      near.stream_gradient = dh.at(), near.gate_products = products.at();
    }
    near.source = buffers.sources.at(i * z.value_bytes());
    near.rho = buffers.rho.at(i * z.tokens * z.statistic_bytes()), near.index = i, near.sites = 1;
    near.keys = buffers.key.at(), near.mix_gradients[0] = buffers.mix.at();
    near.lse = buffers.lse.at(), near.deltas = delta.at(), near.source_gradient = ds.at();
    expect_done(device, subject.kernels.near_backward(z, chunk, near, device.queue));
    gradients[i] = ds.read(type, z.values());
  }
  const GatedRead<double> exact(in, [](double value) { return value; });
  const auto compare = [&](const auto& loops) {
    const auto check = [&](const char* name, const Values& got, const auto& plain, const auto& right) {
      all[name].add(
          type, largest(right), [&](size_t i) { return got.at(i); }, plain, right);
    };
    check("o", mix, loops.mix, exact.mix), check("lse", lse, loops.lse, exact.lse);
    check("y", buffers.output.read(type, z.values()), loops.output, exact.output);
    check("dh", dh.read(type, z.values()), loops.stream_gradient, exact.stream_gradient);
    check("dO", buffers.mix.read(type, z.values()), loops.mix_gradient, exact.mix_gradient);
    check("dgate", products.read(statistic, z.tokens), loops.gate_products, exact.gate_products);
    for (int64_t i = 0; i < N; ++i) check("ds", gradients[i], loops.sources[i], exact.sources[i]);
  };
  if (type == Element::f64) {
    compare(exact);
  } else {
    compare(GatedRead<float>(in, [type](float value) { return static_cast<float>(rounded(type, value)); }));
  }
}

inline void expect_gated_read(const Subject& subject, Element type) {
  const DepthSizes z{9, 64, 4, type, 1e-6};
  if (!subject.takes(z, 4)) return;
  for (const double gate : {0.75, 0.0})
    for (const int64_t far : {0, 2, 4}) {
      std::map<std::string, Measured> all;
      for (uint64_t seed = 51; seed < 59; ++seed) add_gated_read(subject, draw_gated(z, 4, gate, seed), far, all);
      for (const auto& [name, measured] : all)
        measured.expect(std::string(name_of(type)) + ", gate " + std::to_string(gate) + ", far " + std::to_string(far) +
                        ": " + name);
    }
}

/// A gate of exactly 0 takes the stream's own bits: negative zeros and an infinite mix make no difference.
inline void expect_closed_gate(const Subject& subject, Element type) {
  const DepthSizes z{5, 64, 2, type, 1e-6};
  if (!subject.takes(z, 2)) return;
  GatedNumbers in = draw_gated(z, 2, 0.0);
  for (int64_t p = 0; p < 5; ++p) in.stream[p * 64 + 7 * p] = -0.0;
  in.problem.input.sources[0][3 * 64 + 5] = std::numeric_limits<double>::infinity();
  GatedNumbers plain = in;  // reads the stream as its only source
  plain.problem.sites = 1, plain.problem.input.sources = {in.stream};
  plain.problem.input.queries[0].assign(64, 0.0);
  const GatedBuffers closed(subject.device, in), read(subject.device, plain);
  closed.forward(subject, in.problem, 0);
  NearForward pass{};
  pass.sources[0] = read.sources.at(), pass.rho[0] = read.rho.at(), pass.count = 1, pass.key = read.key.at();
  pass.mix = read.mix.at(), pass.lse = read.lse.at(), pass.norm = read.norm();
  expect_done(subject.device, subject.kernels.near_forward(z, pass, subject.device.queue));
  EXPECT_TRUE(read.mix.read(type, z.values()) == read.sources.read(type, z.values()));
  EXPECT_TRUE(closed.output.read(type, z.values()) == read.output.read(type, z.values())) << name_of(type);
  const Element statistic = statistic_type(type);
  EXPECT_TRUE(closed.norm_rho.read(statistic, 5) == read.norm_rho.read(statistic, 5)) << name_of(type);
}

/// A null source alone is returned as it is.
inline void expect_null_alone(const Subject& subject, Element type) {
  const DepthSizes z{5, 64, 2, type, 1e-6};
  if (!subject.takes(z, 2)) return;
  const GatedNumbers in = draw_gated(z, 1, 1.0);
  const GatedBuffers buffers(subject.device, in);
  NearForward pass{};
  pass.mix = buffers.mix.at(), pass.lse = buffers.lse.at(), pass.norm = buffers.norm();
  pass.null_logits = buffers.null_logits.at(), pass.null_value = buffers.null_value.at();
  expect_done(subject.device, subject.kernels.near_forward(z, pass, subject.device.queue));
  const Values mix = buffers.mix.read(type, z.values()), lse = buffers.lse.read(statistic_type(type), 10);
  for (int64_t pd = 0; pd < z.values(); ++pd) EXPECT_EQ(mix.at(pd), in.null_value[pd % 64]) << name_of(type);
  for (int64_t ph = 0; ph < 10; ++ph) EXPECT_EQ(lse.at(ph), in.null_logits[ph % 2]) << name_of(type);
}

}  // namespace mhar::kernels
