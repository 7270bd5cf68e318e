#pragma once
// The host's side of the portable CUDA passes: which instance, how heads are cut, the launch.
#include "kernels/depth_read/cuda_common.cuh"

namespace mhar::kernels::portable {

/// Bytes of a table that still let kResident blocks share a multiprocessor and leave most of it to the cache.
inline constexpr int64_t kTableBytes = 24 * 1024;
/// What a block may have at most on compute capability 8.6 and 8.9, the least of those served.
inline constexpr int64_t kSharedBytes = 96 * 1024;

/// Calls run.operator()<T, V>() for the storage type and V = channel_run(z).
template <typename Run>
int with_storage(const DepthSizes& z, Run run) {
  const bool wide = channel_run(z) == 8;
  switch (z.type) {
    case Element::f32:
      return wide ? run.template operator()<float, 8>() : run.template operator()<float, 1>();
    case Element::bf16:
      return wide ? run.template operator()<__nv_bfloat16, 8>() : run.template operator()<__nv_bfloat16, 1>();
    case Element::f16:
      return wide ? run.template operator()<__half, 8>() : run.template operator()<__half, 1>();
    default:
      return cudaErrorInvalidValue;
  }
}

inline int64_t table_bytes(const Cut& cut, int rows) { return int64_t{cut.stride} * rows * 4; }

/// For a table of `rows` rows with `columns` numbers for each piece of a head.
inline Cut cut_heads(const DepthSizes& z, int V, int rows, int columns) {
  Cut cut{};
  cut.width = static_cast<int>(z.width);
  cut.channels = static_cast<int>(z.channels());
  cut.all_heads = cut.heads = static_cast<int>(z.heads);
  const auto in_parts = [&](int parts) {
    cut.part = static_cast<int>(round_up(quotient_up(cut.channels, parts), V));
    cut.parts = static_cast<int>(quotient_up(cut.channels, cut.part));
    cut.lanes = 1;
    while (cut.lanes < 32 && cut.lanes * V < cut.part) cut.lanes *= 2;
  };
  const auto bytes = [&] {
    cut.stride = static_cast<int>(round_up(int64_t{cut.heads} * cut.parts * columns, 8) + 4);
    return table_bytes(cut, rows);
  };
  in_parts(std::max(1, kWarps / cut.all_heads));  // few heads: every warp still has a piece of its own
  while (bytes() > kTableBytes && cut.heads > 1) cut.heads = (cut.heads + 1) / 2;
  if (bytes() > kSharedBytes) in_parts(1), bytes();
  return cut;
}

// Beyond 48 KiB, the few static bytes included, a kernel has to ask.
template <typename... Arguments>
int launch(void (*kernel)(Arguments...), int64_t blocks, int64_t shared_bytes, void* queue,
           const std::type_identity_t<Arguments>&... arguments) {
  if (shared_bytes > 47 * 1024) {
    const cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
    if (status != cudaSuccess) return status;
  }
  kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(shared_bytes),
           static_cast<cudaStream_t>(queue)>>>(arguments...);
  return cudaGetLastError();
}

/// Blocks of a launch with one token to a block at a time.
inline int64_t token_blocks(const DepthSizes& z) { return std::min(z.tokens, int64_t{1} << 30); }

}  // namespace mhar::kernels::portable
