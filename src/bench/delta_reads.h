#pragma once
#include "bench/full_reads.h"

namespace mhar::bench {

/// Gated reads over block sources, Eq. 42: the sites of block b read block sources 0 .. b and a null source, add the
/// mix to their stream and norm that. One far pass a block, a near pass a site; backward a near pass a site, and for
/// each block, once its oldest site is done, one far pass in which its source pulls from all sites that read it.
/// The kernels have no pass for what `left_out` names.
class DeltaReads : public Subject {
 public:
  static constexpr const char* left_out =
      "gradients of null logits and null values; seven of eight norm weight gradients are not summed over tokens";

  DeltaReads(const Setup& setup, const ReadShape& shape, int64_t tokens);

  int64_t steps() const override { return shape_.sites; }
  void restore() override { key_gradients.zero_(); }
  void forward(int64_t site) override;
  void backward(int64_t site) override;

  int64_t forward_bytes() const;
  int64_t backward_bytes() const;
  int64_t extra_bytes() const;  ///< as FullReads::extra_bytes
  int64_t kept_bytes() const;   ///< of sources and mixes

  at::Tensor sources, mixes;       // [B, P, D] of B blocks, [R, P, D]
  at::Tensor keys, key_gradients;  // S [R, D]
  at::Tensor norms;                // [D], the weight of every site
  at::Tensor null_logits;          // S [H]
  at::Tensor null_value;           // [D]
  at::Tensor stream, gate;         // [P, D], S [1]
  at::Tensor normed_gradient;      // dy [P, D]
  at::Tensor source_gradient;      // ds [P, D]
  at::Tensor stream_gradient;      // dh [P, D]

 private:
  void read_block(int64_t block);
  void pull_source(int64_t block);
  kernels::BackwardChunk chunk(int64_t block) const;

  ReadShape shape_;
  at::Device device_;
  const kernels::DepthKernels* kernels_;
  kernels::DepthSizes sizes_;
  at::Tensor normed_, rho_, norm_rho_, lse_;                               // y, S [B, P], S [R, P], S [R, P, H]
  at::Tensor deltas_, through_rho_, scratch_, norm_gradients_, products_;  // products: S [R, P]
};

}  // namespace mhar::bench
