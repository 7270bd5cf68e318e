#pragma once
// The passes for one level of instructions, over any storage type. Included by one unit per level.
#include "kernels/depth_read/cpu_far.h"
#include "kernels/depth_read/cpu_gradients.h"
#include "kernels/depth_read/cpu_passes.h"
#include "kernels/in_parallel.h"

namespace mhar::kernels {
namespace {

template <typename Run>
[[gnu::always_inline]] inline void with_type(Element type, const Run& run) {
  switch (type) {
    case Element::f32:
      return run(float());
    case Element::bf16:
      return run(Bfloat16());
    case Element::f16:
      return run(Float16());
    case Element::f64:
      return run(double());
  }
}

/// For far passes. Half precision and fp64 are rare on a CPU: their full number of columns serves every number, which
/// saves a quarter of the time to compile.
template <typename T, typename Run>
void with_far_columns(int64_t columns, const Run& run) {
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, Bfloat16>) {
    with_columns(columns, run);
  } else {
    run(Width<kColumns>());
  }
}

void far_forward_pass(const DepthSizes& z, const FarForward& f, void* queue) {
  with_type(z.type, [&](auto type) {
    with_far_columns<decltype(type)>(f.sites, [&](auto columns) {
      in_parallel(queue, z.tokens, [&](int64_t begin, int64_t end) {
        far_forward_rows<decltype(type), decltype(columns)::value>(z, f, begin, end);
      });
    });
  });
}

void near_forward_pass(const DepthSizes& z, const NearForward& n, void* queue) {
  with_type(z.type, [&](auto type) {
    in_parallel(queue, z.tokens,
                [&](int64_t begin, int64_t end) { near_forward_rows<decltype(type)>(z, n, begin, end); });
  });
}

void near_backward_pass(const DepthSizes& z, const BackwardChunk& chunk, const NearBackward& n, void* queue) {
  with_type(z.type, [&](auto type) {
    in_parallel(queue, CpuScratch(z, chunk).ranges(),
                [&](int64_t begin, int64_t end) { near_backward_ranges<decltype(type)>(z, chunk, n, begin, end); });
  });
}

void far_backward_pass(const DepthSizes& z, const BackwardChunk& chunk, const FarBackward& f, void* queue) {
  with_type(z.type, [&](auto type) {
    with_far_columns<decltype(type)>(f.count, [&](auto columns) {
      in_parallel(queue, z.tokens, [&](int64_t begin, int64_t end) {
        far_backward_rows<decltype(type), decltype(columns)::value>(z, chunk, f, begin, end);
      });
    });
  });
}

void chunk_gradients_pass(const DepthSizes& z, const BackwardChunk& chunk, const ChunkGradients& c, void* queue) {
  with_type(z.type, [&](auto type) {
    using T = decltype(type);
    using A = Statistic<T>;
    constexpr int64_t kBlock = 2 * kLanes<A>;
    const int64_t K = z.channels(), blocks = (K + kBlock - 1) / kBlock;
    in_parallel(queue, z.heads * blocks, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t h = item / blocks, first = item % blocks * kBlock;
        const int64_t last = first + kBlock < K ? first + kBlock : K;
        key_gradient_channels<T>(z, chunk, c, h, h * K + first, h * K + last);
      }
    });
    in_parallel(queue, c.normed, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) sum_norm_gradients<A>(z, chunk, c, row);
    });
  });
}

constexpr CpuPasses kLevelPasses{far_forward_pass, near_forward_pass, near_backward_pass, far_backward_pass,
                                 chunk_gradients_pass};

}  // namespace
}  // namespace mhar::kernels
