#include "bench/delta_reads.h"

#include "ops/precision.h"
#include "ops/rms_norm.h"

namespace mhar::bench {

using at::Tensor;

namespace {

void require(const char* pass, int status) { ops::require_launched(pass, status); }

int64_t bytes_of(const std::vector<Tensor>& all) {
  int64_t bytes = 0;
  for (const Tensor& one : all) bytes += static_cast<int64_t>(one.nbytes());
  return bytes;
}

}  // namespace

DeltaReads::DeltaReads(const Setup& setup, const ReadShape& shape, int64_t tokens)
    : shape_(shape),
      device_(setup.device),
      kernels_(setup.engine.kernels),
      sizes_(ops::depth_sizes(setup.reads, tokens, setup.type)) {
  const int64_t R = shape.sites, P = tokens, D = shape.width, H = shape.heads, blocks = R / shape.block;
  const auto values = at::TensorOptions().dtype(setup.type).device(setup.device);
  const auto statistics = values.dtype(ops::compute_type(setup.type));
  sources = at::randn({blocks, P, D}, values);
  mixes = at::empty({R, P, D}, values);
  keys = random_keys(R, setup.reads, statistics);
  key_gradients = at::zeros({R, D}, statistics);
  norms = random_weight(D, values);
  null_logits = at::randn({H}, statistics);
  null_value = at::randn({D}, values);
  stream = at::randn({P, D}, values);
  gate = at::full({1}, 0.5, statistics);
  normed_ = at::empty({P, D}, values);
  normed_gradient = at::randn({P, D}, values);
  source_gradient = at::empty({P, D}, values);
  stream_gradient = at::empty({P, D}, values);
  rho_ = at::empty({blocks, P}, statistics);
  norm_rho_ = at::empty({R, P}, statistics);
  lse_ = at::empty({R, P, H}, statistics);
  deltas_ = at::empty({R, P, H}, statistics);
  through_rho_ = at::empty({1, P, H}, statistics);
  scratch_ = at::empty({kernels_->scratch_bytes(sizes_, R, 1)}, values.dtype(at::kByte));
  norm_gradients_ = at::empty({1, D}, statistics);
  products_ = at::empty({R, P}, statistics);
}

void DeltaReads::read_block(int64_t block) {
  // Kernels that cannot take rho of the newest source within a far pass would take it in a near pass, which reads as
  // much as this does.
  if (!kernels_->finishes) rho_[block].copy_(ops::inverse_rms(sources[block], sizes_.eps).squeeze(-1));
  for (int64_t from = 0; from < shape_.block; from += kernels::kMostFar) {
    const int64_t row = block * shape_.block + from;
    kernels::FarForward pass{};
    pass.sources = sources.data_ptr();
    pass.count = block + 1;
    pass.rho = rho_.data_ptr();
    pass.newest = kernels_->finishes && from == 0;
    pass.keys = keys[row].data_ptr();
    pass.sites = std::min<int64_t>(kernels::kMostFar, shape_.block - from);
    pass.mixes = mixes[row].data_ptr();
    pass.lse = lse_[row].data_ptr();
    require("far forward", kernels_->far_forward(sizes_, pass, ops::depth_queue(device_)));
  }
}

void DeltaReads::forward(int64_t site) {
  if (site % shape_.block == 0) read_block(site / shape_.block);
  kernels::NearForward pass{};
  pass.key = keys[site].data_ptr();
  pass.partial = true;
  pass.mix = mixes[site].data_ptr();
  pass.lse = lse_[site].data_ptr();
  pass.null_logits = null_logits.data_ptr();
  pass.null_value = null_value.data_ptr();
  pass.stream = stream.data_ptr();
  pass.gate = gate.data_ptr();
  pass.norm = {norms.data_ptr(), normed_.data_ptr(), norm_rho_[site].data_ptr()};
  require("near forward", kernels_->near_forward(sizes_, pass, ops::depth_queue(device_)));
}

// A source and the sites that read it are a chunk of one source that all of them reach through its far pass.
kernels::BackwardChunk DeltaReads::chunk(int64_t block) const {
  return {0, 1, 0, shape_.sites - block * shape_.block, scratch_.data_ptr()};
}

void DeltaReads::backward(int64_t site) {
  const int64_t block = site / shape_.block;
  kernels::NearBackward pass{};
  pass.normed_gradient = normed_gradient.data_ptr();
  pass.norm_weight = norms.data_ptr();
  pass.norm_rho = norm_rho_[site].data_ptr();
  pass.mix = mixes[site].data_ptr();
  pass.delta = deltas_[site].data_ptr();
  pass.site = 0;  // all sites of a block share the row of the chunk's only one
  pass.stream = stream.data_ptr();
  pass.gate = gate.data_ptr();
  pass.stream_gradient = stream_gradient.data_ptr();
  pass.gate_products = products_[site].data_ptr();
  require("near backward", kernels_->near_backward(sizes_, chunk(block), pass, ops::depth_queue(device_)));
  if (site % shape_.block == 0) pull_source(block);
  if (site == 0) products_.sum(1);  // the gates' gradients
}

void DeltaReads::pull_source(int64_t block) {
  const int64_t row = block * shape_.block;
  const auto queue = ops::depth_queue(device_);
  kernels::FarBackward far{};
  far.sources = sources[block].data_ptr();
  far.rho = rho_[block].data_ptr();
  far.count = 1;
  far.keys = keys[row].data_ptr();
  far.mix_gradients = mixes[row].data_ptr();
  far.lse = lse_[row].data_ptr();
  far.deltas = deltas_[row].data_ptr();
  far.partials = source_gradient.data_ptr();
  far.through_rho = through_rho_.data_ptr();
  require("far backward", kernels_->far_backward(sizes_, chunk(block), far, queue));

  kernels::NearBackward near{};
  near.source = sources[block].data_ptr();
  near.rho = rho_[block].data_ptr();
  near.keys = keys[row].data_ptr();
  near.lse = lse_[row].data_ptr();
  near.deltas = deltas_[row].data_ptr();
  near.partial = source_gradient.data_ptr();
  near.through_rho = through_rho_.data_ptr();
  near.source_gradient = source_gradient.data_ptr();
  require("near backward", kernels_->near_backward(sizes_, chunk(block), near, queue));

  const kernels::ChunkGradients last{sources[block].data_ptr(), key_gradients[row].data_ptr(),
                                     norm_gradients_.data_ptr(), 1};
  require("chunk gradients", kernels_->chunk_gradients(sizes_, chunk(block), last, queue));
}

// What plan.h counts for the passes of a history, for these.
int64_t DeltaReads::forward_bytes() const {
  const int64_t value = sizes_.value_bytes(), S = sizes_.statistic_bytes();
  const int64_t token = sizes_.tokens * S, head = token * sizes_.heads, width = sizes_.width * S;
  int64_t bytes = shape_.sites * (4 * value + 2 * head + token);  // mix, stream; mix, y
  for (int64_t b = 0; b < shape_.sites / shape_.block; ++b)
    bytes += (b + 1) * (value + token) + shape_.block * (value + head + width);
  return bytes;
}

int64_t DeltaReads::backward_bytes() const {
  const int64_t value = sizes_.value_bytes(), S = sizes_.statistic_bytes();
  const int64_t token = sizes_.tokens * S, head = token * sizes_.heads, width = sizes_.width * S;
  int64_t bytes = shape_.sites * (5 * value + head + 2 * token);  // dy, o, stream; dO, dh
  for (int64_t b = 0; b < shape_.sites / shape_.block; ++b) {
    const int64_t rows = shape_.sites - b * shape_.block;
    const int64_t far = rows * (value + 3 * head + width) + 2 * value + token + head;
    const int64_t near = 3 * value + token + head, gradients = value + rows * (head + 2 * width);
    bytes += far + near + gradients;
  }
  return bytes;
}

int64_t DeltaReads::extra_bytes() const {
  return bytes_of({rho_, norm_rho_, lse_, keys, deltas_, through_rho_, scratch_, key_gradients, norm_gradients_,
                   products_, source_gradient});
}

int64_t DeltaReads::kept_bytes() const { return bytes_of({sources, mixes}); }

}  // namespace mhar::bench
