#include "bench/full_reads.h"

#include <algorithm>
#include <cmath>

#include "ops/precision.h"

namespace mhar::bench {

using at::Tensor;

Tensor random_keys(int64_t rows, const ops::DepthReads& reads, const at::TensorOptions& statistics) {
  const double channels = static_cast<double>(reads.width) / static_cast<double>(reads.heads);
  return at::randn({rows, reads.width}, statistics).mul_(1.5 / std::sqrt(channels));
}

Tensor random_weight(int64_t width, const at::TensorOptions& values) {
  return at::randn({width}, values).mul_(0.1).add_(1.0);
}

FullReads::FullReads(const Setup& setup, int64_t tokens)
    : device_(setup.device),
      forward_{setup.engine.kernels, ops::depth_sizes(setup.reads, tokens, setup.type), setup.reads.sites, setup.plan} {
  const int64_t R = setup.reads.sites, P = tokens, D = setup.reads.width, H = setup.reads.heads;
  const auto values = at::TensorOptions().dtype(setup.type).device(setup.device);
  const auto statistics = values.dtype(ops::compute_type(setup.type));
  const auto& lengths = setup.plan.backward;
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  kept_ = at::randn({R, P, D}, values);
  sources = at::empty_like(kept_);
  mixes = at::empty_like(kept_);
  keys = random_keys(R, setup.reads, statistics);
  keys[0].zero_();
  norms = at::stack(std::vector<Tensor>(R, random_weight(D, values)));
  // One of each for all sites: in training, too, a neighbour has just made dy and takes y and ds at once.
  normed = at::empty({P, D}, values);
  normed_gradient = at::randn({P, D}, values);
  source_gradient = at::empty({P, D}, values);
  rho_ = at::empty({R, P}, statistics);
  norm_rho_ = at::empty({R, P}, statistics);
  lse_ = at::empty({R, P, H}, statistics);
  deltas_ = at::empty({R, P, H}, statistics);
  through_rho_ = at::empty({longest, P, H}, statistics);
  scratch_ = at::empty({forward_.kernels->scratch_bytes(forward_.sizes, R, longest)}, values.dtype(at::kByte));
  key_gradients = at::zeros({R, D}, statistics);
  norm_gradients = at::zeros({R, D}, statistics);
  restore();
}

kernels::DepthMemory FullReads::memory() const {
  return {.sources = sources.data_ptr(),
          .mixes = mixes.data_ptr(),
          .rho = rho_.data_ptr(),
          .lse = lse_.data_ptr(),
          .norm_rho = norm_rho_.data_ptr(),
          .keys = keys.data_ptr(),
          .deltas = deltas_.data_ptr(),
          .through_rho = through_rho_.data_ptr(),
          .scratch = scratch_.data_ptr(),
          .key_gradients = key_gradients.data_ptr(),
          .norm_gradients = norm_gradients.data_ptr()};
}

void FullReads::forward(int64_t site) {
  const kernels::DepthNorm norm{norms[site].data_ptr(), normed.data_ptr(), nullptr};
  ops::require_launched("depth read forward",
                        kernels::depth_forward(forward_, memory(), site, norm, ops::depth_queue(device_)));
}

void FullReads::backward(int64_t site) {
  const kernels::SiteGradient gradient{normed_gradient.data_ptr(), norms[site].data_ptr(), source_gradient.data_ptr()};
  ops::require_launched("depth read backward",
                        kernels::depth_backward(forward_, memory(), site, gradient, ops::depth_queue(device_)));
}

int64_t FullReads::extra_bytes() const {
  int64_t bytes = 0;
  for (const Tensor& one :
       {rho_, norm_rho_, lse_, keys, deltas_, through_rho_, scratch_, key_gradients, norm_gradients, source_gradient}) {
    bytes += static_cast<int64_t>(one.nbytes());
  }
  return bytes;
}

}  // namespace mhar::bench
