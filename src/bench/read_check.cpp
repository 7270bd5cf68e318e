#include "bench/read_check.h"

#include <algorithm>
#include <cmath>

#include "reference/depth_history.h"

namespace mhar::bench {
namespace {

using at::Tensor;
using Vector = std::vector<double>;

Vector numbers(const Tensor& tensor) {
  const Tensor wide = tensor.to(at::kCPU, at::kDouble).contiguous();
  const double* first = wide.const_data_ptr<double>();
  return {first, first + wide.numel()};
}

std::vector<Vector> rows(const Tensor& tensor) {
  std::vector<Vector> result;
  for (int64_t i = 0; i < tensor.size(0); ++i) result.push_back(numbers(tensor[i]));
  return result;
}

// A NaN anywhere makes the error infinite.
class Difference {
 public:
  void add(const Vector& got, const Vector& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      const double error = std::abs(got[i] - wanted[i]);
      error_ = std::isnan(error) ? INFINITY : std::max(error_, error);
      size_ = std::max(size_, std::abs(wanted[i]));
    }
  }
  double relative() const { return error_ == 0.0 ? 0.0 : error_ / size_; }

 private:
  double error_ = 0, size_ = 0;
};

// One gated site of Eq. 42 and its gradients. `read` becomes that of the sources with the null source merged in.
struct GatedSite {
  reference::DepthReadSizes sizes;
  Vector stream, null_logits, null_value, norm_weight, normed_gradient;
  double gate;

  void merge_null(reference::DepthRead<double>& read) const {
    const auto [N, P, D, H, eps] = sizes;
    for (int64_t p = 0; p < P; ++p) {
      for (int64_t h = 0; h < H; ++h) {
        double total = 0, largest = null_logits[h];
        const auto at = [P = P, H = H, p, h](int64_t i) { return (i * P + p) * H + h; };
        for (int64_t i = 0; i < N; ++i) largest = std::max(largest, read.logits[at(i)]);
        for (int64_t i = 0; i < N; ++i) total += std::exp(read.logits[at(i)] - largest);
        const double null = std::exp(null_logits[h] - largest), share = total / (total + null);
        for (int64_t i = 0; i < N; ++i) read.weights[at(i)] *= share;
        for (int64_t d = h * sizes.channels(); d < (h + 1) * sizes.channels(); ++d) {
          double& o = read.output[p * D + d];
          o = share * o + (1 - share) * null_value[d];
        }
      }
    }
  }

  // dO of the merged mix.
  Vector mix_gradient(const Vector& mix) const {
    const reference::RmsNormSizes norm_sizes{sizes.tokens, sizes.width, sizes.eps};
    Vector x(stream);
    for (size_t i = 0; i < x.size(); ++i) x[i] += gate * mix[i];
    const auto norm = reference::rms_norm<double>(norm_sizes, x, Vector(sizes.width, 1.0));
    Vector dO = reference::rms_norm_backward<double>(norm_sizes, x, norm_weight, norm, normed_gradient).x;
    for (double& value : dO) value *= gate;
    return dO;
  }
};

}  // namespace

double ReadErrors::worst() const { return std::max({mix, source_gradient, key_gradient}); }

int64_t tokens_to_check(const ReadShape& shape) {
  const int64_t sources = shape.block > 0 ? shape.sites / shape.block : shape.sites;
  const double pairs =
      static_cast<double>(shape.sites) * static_cast<double>(sources) * static_cast<double>(shape.width);
  return std::clamp<int64_t>(static_cast<int64_t>(0x1p28 / pairs), std::min<int64_t>(3, shape.tokens),
                             std::min<int64_t>(33, shape.tokens));
}

double error_limit(at::ScalarType type) {
  if (type == at::kBFloat16) return 2e-2;
  return type == at::kHalf ? 3e-3 : 1e-5;
}

ReadErrors check_full(const Setup& setup, int64_t tokens) {
  FullReads reads(setup, tokens);
  const int64_t R = setup.reads.sites, D = setup.reads.width;
  reference::DepthHistoryInput<double> input;
  input.sources = rows(reads.sources);
  input.queries = rows(reads.keys);
  input.gains.assign(R, Vector(D, 1.0));
  input.norm_weights = rows(reads.norms);
  input.output_gradients.assign(R, numbers(reads.normed_gradient));
  const auto wanted = reference::depth_history<double>({R, tokens, D, setup.reads.heads, setup.reads.eps}, input);

  Difference mix, source_gradient, key_gradient;
  for (int64_t site = 0; site < R; ++site) reads.forward(site);
  for (int64_t site = 0; site < R; ++site) mix.add(numbers(reads.mixes[site]), wanted.mixes[site]);
  for (int64_t site = R - 1; site >= 0; --site) {
    reads.backward(site);
    source_gradient.add(numbers(reads.source_gradient), wanted.source_gradients[site]);
  }
  for (int64_t site = 1; site < R; ++site)
    key_gradient.add(numbers(reads.key_gradients[site]), wanted.query_gradients[site]);
  return {mix.relative(), source_gradient.relative(), key_gradient.relative()};
}

ReadErrors check_delta(const Setup& setup, const ReadShape& shape, int64_t tokens) {
  DeltaReads reads(setup, shape, tokens);
  const int64_t R = shape.sites, D = shape.width;
  const std::vector<Vector> sources = rows(reads.sources);
  const Vector gain(D, 1.0);
  for (int64_t site = 0; site < R; ++site) reads.forward(site);

  Difference mix, source_gradient, key_gradient;
  std::vector<Vector> ds(sources.size(), Vector(tokens * D)), dw;
  for (int64_t site = 0; site < R; ++site) {
    const int64_t count = site / shape.block + 1;
    const std::vector<Vector> read_sources(sources.begin(), sources.begin() + count);
    const GatedSite gated{{count, tokens, D, shape.heads, setup.reads.eps},
                          numbers(reads.stream),
                          numbers(reads.null_logits),
                          numbers(reads.null_value),
                          numbers(reads.norms),
                          numbers(reads.normed_gradient),
                          reads.gate.item<double>()};
    const Vector key = numbers(reads.keys[site]);
    auto read = reference::depth_read<double>(gated.sizes, read_sources, key, gain);
    gated.merge_null(read);
    mix.add(numbers(reads.mixes[site]), read.output);
    const Vector dO = gated.mix_gradient(read.output);
    const auto gradients = reference::depth_read_backward<double>(gated.sizes, read_sources, key, gain, read, dO);
    for (int64_t i = 0; i < count; ++i)
      for (size_t pd = 0; pd < ds[i].size(); ++pd) ds[i][pd] += gradients.sources[i][pd];
    dw.push_back(gradients.query);
  }
  reads.restore();
  for (int64_t site = R - 1; site >= 0; --site) {
    reads.backward(site);
    if (site % shape.block == 0) source_gradient.add(numbers(reads.source_gradient), ds[site / shape.block]);
  }
  for (int64_t site = 0; site < R; ++site) key_gradient.add(numbers(reads.key_gradients[site]), dw[site]);
  return {mix.relative(), source_gradient.relative(), key_gradient.relative()};
}

}  // namespace mhar::bench
