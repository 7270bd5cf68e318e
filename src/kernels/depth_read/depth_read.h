#pragma once
// The chunked depth read (docs/depth_read.md): far and near passes, forward and backward, over buffers of the caller.
// Letters: N sources s_i, R sites, P tokens, D width, H routing heads, K = D / H channels of a head; w = q * g is a
// site's key, o its mix, y = RMSNorm(o) what the sublayer gets, rho_i = 1 / rms(s_i), lse the natural logarithm of a
// softmax's denominator, with the largest logit inside.
//
// Values (sources, mixes, their gradients, norm weights) have the storage type of DepthSizes. Statistics (rho, lse,
// delta, keys, sums) are fp32, and fp64 where values are fp64: "S" in the shapes below. Every buffer is contiguous and
// 16-byte aligned; consecutive sources, mixes and statistics follow one another without gaps. Nothing is read that is
// not named here: what has not been written yet may hold NaN.
#include <cstdint>

#include "kernels/element.h"

namespace mhar::kernels {

inline constexpr int kMostNear = 16;  ///< sources or sites of one near pass; also the longest chunk
inline constexpr int kMostFar = 8;    ///< sites (forward) or sources (backward) of one far pass

struct DepthSizes {
  int64_t tokens, width, heads;  ///< P >= 0, D, H; H divides D
  Element type;
  double eps;  ///< of every RMSNorm: the keys' and the one that follows a read

  int64_t channels() const { return width / heads; }
  int64_t values() const { return tokens * width; }  ///< elements of one source or mix
  int64_t value_bytes() const { return values() * bytes_of(type); }
  int64_t statistic_bytes() const { return type == Element::f64 ? 8 : 4; }
};

/// The RMSNorm after a read, Eq. 9: o is rounded to the storage type before its statistic is taken, and o / rms before
/// it meets the weight. Skipped where `weight` is null.
struct DepthNorm {
  const void* weight = nullptr;  ///< [D]
  void* output = nullptr;        ///< y [P, D]
  void* rho = nullptr;           ///< 1 / rms(o), S [P]
};

/// Far pass, Eq. 37: sources 0 .. count-1 against the keys of `sites` sites that all read them.
struct FarForward {
  const void* sources;  ///< [count, P, D], count >= 1
  int64_t count;
  void* rho;         ///< S [count, P]; given for all sources, but the last where `newest`
  bool newest;       ///< computes rho of the last source and writes it
  const void* keys;  ///< S [sites, D]
  int64_t sites;     ///< 1 .. kMostFar
  void* mixes;       ///< [sites, P, D]: written, each normalised by its own denominator
  void* lse;         ///< S [sites, P, H]: written
  DepthNorm norm;    ///< of the first site, which is finished when nothing follows
};

/// Near pass, Eq. 38: one site merges what its far pass left with the sources made since, then a null source, then the
/// stream of a gated design, then the norm. A part that is absent (count 0, `partial` false, null pointers) is skipped;
/// at least one of far part, sources and null is there.
struct NearForward {
  const void* sources[kMostNear];  ///< [P, D] each
  void* rho[kMostNear];            ///< S [P] each
  int64_t count = 0;
  bool newest = false;   ///< rho of the last source is computed and written, otherwise it is given
  const void* key;       ///< S [D]
  bool partial = false;  ///< mix and lse hold a far pass's result on entry
  void* mix;             ///< [P, D]: written (the mix itself, without stream and gate)
  void* lse;             ///< S [P, H]: written

  const void* null_logits = nullptr;  ///< S [H], the same for every token
  const void* null_value = nullptr;   ///< [D]

  const void* stream = nullptr;  ///< [P, D]; the norm then takes x = stream + gate * mix, rounded once
  const void* gate = nullptr;    ///< S, one number in memory of the device; exactly 0 takes the stream's own bits
  DepthNorm norm;
};

/// A chunk of sources in the backward pass, first .. first+count-1, whose turn comes from the newest down.
/// Sites `far` .. sites-1 reach it through one far pass, sites first .. far-1 through near passes.
struct BackwardChunk {
  int64_t first, count;
  int64_t far;    ///< first + count - 1, or `sites` for the newest chunk, which has no far pass
  int64_t sites;  ///< R, the sites that take part
  void* scratch;  ///< DepthKernels::scratch_bytes, shared by the passes of a chunk; holds nothing between chunks
};

/// Near backward, Eq. 39 and 40, in two parts of which either may be absent: a site (its norm's gradient, then dO over
/// o and delta), then a source (the gradient from the sites of its chunk).
struct NearBackward {
  // ---- the site; absent where `normed_gradient` is null
  const void* normed_gradient = nullptr;  ///< dy [P, D], or dO itself where `norm_weight` is null
  const void* norm_weight = nullptr;      ///< [D]
  const void* norm_rho = nullptr;         ///< S [P]
  void* mix = nullptr;                    ///< [P, D]: o on entry, dO on return
  void* delta = nullptr;                  ///< S [P, H]: written
  int64_t site = 0;                       ///< r, the row of its norm's weight gradient within the chunk
  const void* stream = nullptr;           ///< gated designs: as in NearForward; `normed_gradient` then reaches dh first
  const void* gate = nullptr;
  void* stream_gradient = nullptr;  ///< dh [P, D]: written
  void* gate_products = nullptr;    ///< S [P]: sum_d dh * o, written; the gate's gradient is their sum

  // ---- the source; absent where `source` is null
  const void* source = nullptr;  ///< [P, D]
  const void* rho = nullptr;     ///< S [P]
  int64_t index = 0;             ///< i
  int64_t sites = 0;             ///< n <= kMostNear near sites i .. i+n-1; the first is the site above if present
  const void* keys = nullptr;    ///< S [n, D]
  const void* mix_gradients[kMostNear]{};  ///< dO [P, D] each; entry 0 is `mix` where the site above is present
  const void* lse = nullptr;               ///< S [n, P, H]
  const void* deltas = nullptr;            ///< S [n, P, H]; entry 0 is `delta` where the site above is present
  const void* partial = nullptr;           ///< [P, D] of the far pass, or null
  const void* through_rho = nullptr;       ///< S [P, H] of the far pass, with `partial`; null counts as 0
  void* source_gradient = nullptr;         ///< ds [P, D]: written; may be the memory of `partial`
};

/// Far backward, Eq. 39: what the chunk's sources get from sites far .. R-1, read once each.
struct FarBackward {
  const void* sources;  ///< [count, P, D]
  const void* rho;      ///< S [count, P]
  int64_t count;        ///< 1 .. kMostFar
  int64_t column;       ///< of the first of them in the chunk; more than 0 only in chunks longer than kMostFar
  // of sites far .. R-1:
  const void* keys;           ///< S [R - far, D]
  const void* mix_gradients;  ///< dO [R - far, P, D]
  const void* lse;            ///< S [R - far, P, H]
  const void* deltas;         ///< S [R - far, P, H]
  void* partials;             ///< [count, P, D]: written; the term of rho is left to the near pass
  void* through_rho;          ///< S [count, P, H]: sum over sites of da * a, written
};

/// The chunk's share of the parameters' gradients, after its last near pass and while its sources still hold values.
struct ChunkGradients {
  const void* sources;   ///< [count, P, D]
  void* key_gradients;   ///< dw S [R, D]: rows first .. first+count-1 are written, later rows added to
  void* norm_gradients;  ///< S [R, D]: rows first .. first+count-1, those whose norm went through here, are written
  int64_t normed;        ///< how many of the chunk's sites had a norm: all or none
};

/// One implementation. Functions return 0, a cudaError_t of the launch, or not_built_with_cuda; they allocate nothing
/// and do not wait. `queue` is the cudaStream_t, or for the CPU a ParallelFor or null.
struct DepthKernels {
  const char* name;
  int longest_chunk;  ///< of forward and backward chunks, at most kMostNear
  bool finishes;      ///< far passes take rho of the newest source and the norm (needs a whole row at one place)
  /// Null if it takes this shape, otherwise why not, as the end of "... takes no ".
  const char* (*refuses)(const DepthSizes&, int64_t sites);
  int64_t (*scratch_bytes)(const DepthSizes&, int64_t sites, int64_t longest_chunk);
  int (*far_forward)(const DepthSizes&, const FarForward&, void* queue);
  int (*near_forward)(const DepthSizes&, const NearForward&, void* queue);
  int (*near_backward)(const DepthSizes&, const BackwardChunk&, const NearBackward&, void* queue);
  int (*far_backward)(const DepthSizes&, const BackwardChunk&, const FarBackward&, void* queue);
  int (*chunk_gradients)(const DepthSizes&, const BackwardChunk&, const ChunkGradients&, void* queue);
};

/// Runs body(context, begin, end) over parts of [0, items), possibly at the same time, and returns when all are done.
struct ParallelFor {
  void* self;
  void (*run)(void* self, int64_t items, void (*body)(void* context, int64_t begin, int64_t end), void* context);
};

const DepthKernels& depth_kernels_cpu();
/// Any shape and type but fp64, compute capability 8.0 and later.
const DepthKernels& depth_kernels_cuda();
/// Tensor cores and bulk copies of compute capability 9.0; bf16.
const DepthKernels& depth_kernels_hopper();

}  // namespace mhar::kernels
