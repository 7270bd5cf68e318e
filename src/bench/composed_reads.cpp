#include "bench/composed_reads.h"

#include <torch/torch.h>

#include "ops/precision.h"
#include "ops/rms_norm.h"

namespace mhar::bench {

ComposedReads::ComposedReads(const Setup& setup, int64_t tokens) : reads_(setup.reads) {
  const auto values = at::TensorOptions().dtype(setup.type).device(setup.device);
  stored_ = at::randn({reads_.sites, tokens, reads_.width}, values);
  keys_ = random_keys(reads_.sites, reads_, values.dtype(ops::compute_type(setup.type)));
  norm_ = random_weight(reads_.width, values).requires_grad_(true);
  normed_gradient_ = at::randn({tokens, reads_.width}, values);
}

void ComposedReads::restore() {
  sources_.clear();
  site_keys_.clear();
  outputs_.clear();
  norm_.mutable_grad().reset();
}

void ComposedReads::forward(int64_t site) {
  ops::DepthSource source = ops::depth_source(stored_[site], reads_.eps);
  source.value = source.value.detach().requires_grad_(true);
  sources_.push_back(std::move(source));
  site_keys_.push_back(keys_[site].detach().requires_grad_(true));
  const at::Tensor mix = ops::depth_read(sources_, site_keys_.back(), reads_.heads);
  outputs_.push_back(ops::rms_norm(mix.to(stored_.scalar_type()), norm_, reads_.eps));
}

void ComposedReads::backward(int64_t site) {
  outputs_[site].backward(normed_gradient_);
  outputs_[site].reset();
  sources_[site].value.grad().to(stored_.scalar_type());
}

}  // namespace mhar::bench
