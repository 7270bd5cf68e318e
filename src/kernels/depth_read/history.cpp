#include "kernels/depth_read/history.h"

#include <algorithm>
#include <type_traits>

namespace mhar::kernels {
namespace {

struct Chunk {
  int64_t first, length;
};

Chunk chunk_of(const std::vector<int64_t>& lengths, int64_t site) {
  Chunk chunk{0, lengths.front()};
  for (size_t i = 1; site >= chunk.first + chunk.length; ++i) chunk = {chunk.first + chunk.length, lengths[i]};
  return chunk;
}

// Element `index` of a row of buffers of `bytes` each.
template <typename Pointer>
Pointer at(Pointer base, int64_t index, int64_t bytes) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, void*>, char, const char>;
  return static_cast<Byte*>(base) + index * bytes;
}

}  // namespace

int depth_forward(const DepthHistoryRun& run, const DepthMemory& m, int64_t site, DepthNorm norm, void* queue) {
  const auto& kernels = *run.kernels;
  const DepthBytes stride(run.sizes);
  const Chunk chunk = chunk_of(run.plan.forward, site);
  const bool far = chunk.first > 0;
  norm.rho = at(m.norm_rho, site, stride.token);

  if (far && site == chunk.first) {
    for (int64_t from = 0; from < chunk.length; from += kMostFar) {
      const int64_t row = site + from;
      FarForward pass{};
      pass.sources = m.sources;
      pass.count = chunk.first + kernels.finishes;
      pass.rho = m.rho;
      pass.newest = kernels.finishes && from == 0;
      pass.keys = at(m.keys, row, stride.width);
      pass.sites = std::min<int64_t>(kMostFar, chunk.length - from);
      pass.mixes = at(m.mixes, row, stride.value);
      pass.lse = at(m.lse, row, stride.head);
      if (pass.newest) pass.norm = norm;
      if (const int status = kernels.far_forward(run.sizes, pass, queue)) return status;
    }
    if (kernels.finishes) return 0;
  }

  const int64_t oldest = far ? chunk.first + kernels.finishes : 0;
  NearForward pass{};
  for (int64_t i = oldest; i <= site; ++i) {
    pass.sources[pass.count] = at(m.sources, i, stride.value);
    pass.rho[pass.count++] = at(m.rho, i, stride.token);
  }
  pass.newest = true;
  pass.key = at(m.keys, site, stride.width);
  pass.partial = far;
  pass.mix = at(m.mixes, site, stride.value);
  pass.lse = at(m.lse, site, stride.head);
  pass.norm = norm;
  return kernels.near_forward(run.sizes, pass, queue);
}

namespace {

struct Backward {
  const DepthHistoryRun& run;
  const DepthMemory& m;
  void* queue;
  DepthBytes stride;
  BackwardChunk chunk;

  bool far() const { return chunk.far < chunk.sites; }
  // Slots behind the chunk: their sources have had their gradients and are not read again.
  void* partial(int64_t i) const { return at(m.sources, i + chunk.count, stride.value); }
  void* through_rho(int64_t i) const { return at(m.through_rho, i - chunk.first, stride.head); }

  void add_site(NearBackward& pass, int64_t site, const SiteGradient& gradient) const {
    pass.normed_gradient = gradient.normed_gradient;
    pass.norm_weight = gradient.norm_weight;
    pass.norm_rho = at(m.norm_rho, site, stride.token);
    pass.mix = at(m.mixes, site, stride.value);
    pass.delta = at(m.deltas, site, stride.head);
    pass.site = site;
  }

  void add_source(NearBackward& pass, int64_t i, int64_t sites, const SiteGradient& gradient) const {
    pass.source = at(m.sources, i, stride.value);
    pass.rho = at(m.rho, i, stride.token);
    pass.index = i;
    pass.sites = sites;
    pass.keys = at(m.keys, i, stride.width);
    for (int64_t n = 0; n < sites; ++n) pass.mix_gradients[n] = at(m.mixes, i + n, stride.value);
    pass.lse = at(m.lse, i, stride.head);
    pass.deltas = at(m.deltas, i, stride.head);
    if (far()) {
      pass.partial = partial(i);
      pass.through_rho = through_rho(i);
    }
    pass.source_gradient = gradient.source_gradient;
  }

  int near(const NearBackward& pass) const { return run.kernels->near_backward(run.sizes, chunk, pass, queue); }

  int pull_far() const {
    for (int64_t from = 0; from < chunk.count; from += kMostFar) {
      const int64_t i = chunk.first + from;
      FarBackward pass{};
      pass.sources = at(m.sources, i, stride.value);
      pass.rho = at(m.rho, i, stride.token);
      pass.count = std::min<int64_t>(kMostFar, chunk.count - from);
      pass.column = from;
      pass.keys = at(m.keys, chunk.far, stride.width);
      pass.mix_gradients = at(m.mixes, chunk.far, stride.value);
      pass.lse = at(m.lse, chunk.far, stride.head);
      pass.deltas = at(m.deltas, chunk.far, stride.head);
      pass.partials = partial(i);
      pass.through_rho = through_rho(i);
      if (const int status = run.kernels->far_backward(run.sizes, chunk, pass, queue)) return status;
    }
    return 0;
  }

  int finish(bool normed) const {
    ChunkGradients pass{};
    pass.sources = at(m.sources, chunk.first, stride.value);
    pass.key_gradients = m.key_gradients;
    pass.norm_gradients = m.norm_gradients;
    pass.normed = normed ? chunk.count : 0;
    return run.kernels->chunk_gradients(run.sizes, chunk, pass, queue);
  }
};

}  // namespace

int depth_backward(const DepthHistoryRun& run, const DepthMemory& memory, int64_t site, const SiteGradient& gradient,
                   void* queue) {
  const Chunk place = chunk_of(run.plan.backward, site);
  const int64_t top = place.first + place.length - 1;
  const bool newest = top + 1 == run.sites;
  const Backward pass{run,
                      memory,
                      queue,
                      DepthBytes(run.sizes),
                      {place.first, place.length, newest ? run.sites : top, run.sites, memory.scratch}};
  int status = 0;
  NearBackward near{};
  pass.add_site(near, site, gradient);
  if (pass.far() && site == top) {
    // The far pass takes this site's dO in, so the site's part comes before it and the source's part after.
    status = pass.near(near);
    if (status == 0) status = pass.pull_far();
    near = {};
    pass.add_source(near, site, 0, gradient);
  } else {
    pass.add_source(near, site, pass.chunk.far - site, gradient);
  }
  if (status == 0) status = pass.near(near);
  if (status == 0 && site == place.first) status = pass.finish(gradient.norm_weight != nullptr);
  return status;
}

}  // namespace mhar::kernels
