#pragma once
// A whole history of depth reads, Eq. 33 without its sublayers: site r reads sources 0 .. r and norms what it read.
// Every equation is that of depth_read.h and rms_norm.h; here they are chained over all sites, forward and back.
#include <cmath>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reference/depth_read.h"
#include "reference/rms_norm.h"

namespace mhar::reference {

struct DepthHistorySizes {
  int64_t sites, tokens, width, heads;  ///< R >= 1 (as many sources), P >= 0, D, H; H divides D
  double eps = 1e-6;
};

template <typename T>
struct DepthHistoryInput {
  std::vector<std::vector<T>> sources;         ///< R of [P, D]
  std::vector<std::vector<T>> queries, gains;  ///< R of [D]
  std::vector<std::vector<T>> norm_weights;    ///< R of [D], or none: then nothing is normed
  std::vector<std::vector<T>>
      output_gradients;  ///< [P, D] of the first sites: dy, or dO without norms; later ones none
};

template <typename T>
struct DepthHistory {
  std::vector<std::vector<T>> mixes;             ///< o, R of [P, D]
  std::vector<std::vector<T>> outputs;           ///< y, R of [P, D], or none
  std::vector<std::vector<T>> lse;               ///< R of [P, H]
  std::vector<std::vector<T>> mix_gradients;     ///< dO of the sites with a gradient
  std::vector<std::vector<T>> source_gradients;  ///< ds of the sources that they read
  std::vector<std::vector<T>> query_gradients;   ///< dq, [D] each
  std::vector<std::vector<T>> gain_gradients;    ///< dg, [D] each
  std::vector<std::vector<T>> norm_gradients;    ///< [D] each, or none
};

/// The logarithm of a softmax's denominator, [P, H]: a weight and its logit give it back.
template <typename T>
std::vector<T> log_denominators(const DepthReadSizes& sizes, const DepthRead<T>& read) {
  const int64_t PH = sizes.tokens * sizes.heads;
  std::vector<T> lse(PH);
  for (int64_t ph = 0; ph < PH; ++ph) {
    int64_t most = ph;
    for (int64_t at = ph; at < sizes.sources * PH; at += PH)
      if (read.weights[at] > read.weights[most]) most = at;
    lse[ph] = read.logits[most] - std::log(read.weights[most]);
  }
  return lse;
}

/// The weights as a backward pass finds them, from logits and denominators: Eq. 39.
template <typename T>
void weigh_again(DepthRead<T>& read, const std::vector<T>& lse) {
  for (size_t at = 0; at < read.weights.size(); ++at)
    read.weights[at] = std::exp(std::min(read.logits[at] - lse[at % lse.size()], T(0)));
}

/// `store` rounds a number to the storage type. It is applied where the kernels store o, o / rms, y, dO and ds, and
/// nowhere else; what is computed next takes the rounded value.
template <typename T, typename Store>
DepthHistory<T> depth_history(const DepthHistorySizes& sizes, const DepthHistoryInput<T>& input, const Store& store) {
  const auto [R, P, D, H, eps] = sizes;
  const int64_t active = static_cast<int64_t>(input.output_gradients.size());
  const bool normed = !input.norm_weights.empty();
  const RmsNormSizes rows{P, D, eps};
  const std::vector<T> ones(D, T(1));
  const auto stored = [&](std::vector<T> values) {
    for (T& value : values) value = store(value);
    return values;
  };
  DepthHistory<T> result;
  result.source_gradients.assign(active, std::vector<T>(P * D));
  for (int64_t r = 0; r < R; ++r) {
    const DepthReadSizes site{r + 1, P, D, H, eps};
    const std::span<const T> query = input.queries[r], gain = input.gains[r];
    DepthRead<T> read = depth_read<T>(site, input.sources, query, gain);
    read.output = stored(std::move(read.output));
    result.mixes.push_back(read.output);
    result.lse.push_back(log_denominators(site, read));
    weigh_again(read, result.lse.back());

    RmsNorm<T> norm;
    if (normed) {
      norm = rms_norm<T>(rows, read.output, ones);
      std::vector<T> output = stored(norm.output);
      for (int64_t pd = 0; pd < P * D; ++pd) output[pd] = store(input.norm_weights[r][pd % D] * output[pd]);
      result.outputs.push_back(std::move(output));
    }
    if (r >= active) continue;
    std::vector<T> dO = input.output_gradients[r];
    if (normed) {
      RmsNormGradients<T> gradients = rms_norm_backward<T>(rows, read.output, input.norm_weights[r], norm, dO);
      dO = stored(std::move(gradients.x));
      result.norm_gradients.push_back(std::move(gradients.weight));
    }
    DepthReadGradients<T> gradients = depth_read_backward<T>(site, input.sources, query, gain, read, dO);
    for (int64_t i = 0; i <= r; ++i)
      for (int64_t pd = 0; pd < P * D; ++pd) result.source_gradients[i][pd] += gradients.sources[i][pd];
    result.query_gradients.push_back(std::move(gradients.query));
    result.gain_gradients.push_back(std::move(gradients.gain));
    result.mix_gradients.push_back(std::move(dO));
  }
  for (auto& ds : result.source_gradients) ds = stored(std::move(ds));
  return result;
}

/// Nothing rounded but to T itself.
template <typename T>
DepthHistory<T> depth_history(const DepthHistorySizes& sizes, const DepthHistoryInput<T>& input) {
  return depth_history<T>(sizes, input, [](T value) { return value; });
}

}  // namespace mhar::reference
