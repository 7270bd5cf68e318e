#pragma once
// How the far passes get their results out of the accumulators.
#include <cuda_bf16.h>

#include "kernels/depth_read/hopper_ptx.h"

namespace mhar::kernels::hopper {

inline constexpr int kSlotBytes = 512;  ///< staging of a warp: 8 rows of 32 channels in bf16

/// Address of 16 bytes in a slot; the pieces of a row change places so that neither a column of eight matrix rows nor
/// two whole rows meet a bank twice.
__device__ __forceinline__ uint32_t slot_piece(uint32_t slot, int row, int piece) {
  return slot + row * 64 + ((piece ^ (row >> 1)) & 3) * 16;
}

/// Where a warp's rows go: up to eight, `pitch` elements apart.
struct RowTarget {
  __nv_bfloat16* base;
  int64_t pitch;
  int rows;
};

/// Accumulators of channels 16 i + (g, g + 8) and rows (2t, 2t + 1), scaled by row, to bf16 rows in memory.
/// Where `instead` is given, every row is a copy of it: a mix of one source is that source to the last bit, and the
/// sign of zero does not survive a sum. Lane v < 2 kSteps gets channels 8v .. 8v+7 of row 0 back.
template <int kSteps>
__device__ __forceinline__ uint4 write_rows(const float (&sum)[kSteps][4], float scale0, float scale1, uint32_t slot,
                                            const RowTarget& target, const __nv_bfloat16* instead, int lane) {
  uint4 first_row = make_uint4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kSteps; i += 2) {
    const bool whole = i + 1 < kSteps;  // 32 channels, or the last 16
    __syncwarp();
    const uint32_t to = slot_piece(slot, lane & 7, whole ? lane >> 3 : (lane >> 3) & 1);
    const uint32_t x0 = pack(sum[i][0] * scale0, sum[i][1] * scale1);
    const uint32_t x1 = pack(sum[i][2] * scale0, sum[i][3] * scale1);
    if (whole) {
      const int j = i + 1 < kSteps ? i + 1 : i;
      store_matrices_transposed(to, x0, x1, pack(sum[j][0] * scale0, sum[j][1] * scale1),
                                pack(sum[j][2] * scale0, sum[j][3] * scale1));
    } else {
      store_matrices_transposed(to, x0, x1);
    }
    __syncwarp();
    const int row = whole ? lane >> 2 : lane >> 1, piece = whole ? lane & 3 : lane & 1;
    if (row < target.rows) {
      const int channel = i * 16 + piece * 8;
      const uint4 value = instead == nullptr ? load_shared_16(slot_piece(slot, row, piece))
                                             : *reinterpret_cast<const uint4*>(instead + channel);
      *reinterpret_cast<uint4*>(target.base + row * target.pitch + channel) = value;
    }
    if (lane >> 2 == i / 2 && lane < 2 * kSteps) first_row = load_shared_16(slot_piece(slot, 0, lane & 3));
  }
  return first_row;
}

/// The lane's place where eight rows leave in steps of 32 channels, 16 bytes a lane. Rows four apart share a quarter of
/// the warp: with a pitch of an odd number of 16 bytes their pieces meet no bank twice.
struct RowLanes {
  int row, piece;
  __device__ explicit RowLanes(int lane) : row((lane >> 3) + (lane & 4)), piece(lane & 3) {}
};

/// Accumulators as in write_rows, scaled, to bf16 rows in shared memory, `pitch` bytes apart.
template <int kSteps>
__device__ __forceinline__ void stage_rows(const float (&sum)[kSteps][4], float scale0, float scale1, uint32_t rows,
                                           int pitch, int lane) {
  const uint32_t to = rows + (lane & 7) * pitch + (lane >> 3) * 16, last = rows + (lane & 7) * pitch + (lane & 8) * 2;
#pragma unroll
  for (int i = 0; i < kSteps; i += 2) {
    const uint32_t x0 = pack(sum[i][0] * scale0, sum[i][1] * scale1);
    const uint32_t x1 = pack(sum[i][2] * scale0, sum[i][3] * scale1);
    if (i + 1 < kSteps) {
      const int j = i + 1 < kSteps ? i + 1 : i;
      store_matrices_transposed(to + i * 32, x0, x1, pack(sum[j][0] * scale0, sum[j][1] * scale1),
                                pack(sum[j][2] * scale0, sum[j][3] * scale1));
    } else {
      store_matrices_transposed(last + i * 32, x0, x1);
    }
  }
}

/// What follows from the result is computed after this, not kept in registers through the loops before it.
__device__ __forceinline__ int computed_here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

/// 1 / x and the logarithm to base 2 of normal numbers: the plain functions' care for others is ten instructions each.
__device__ __forceinline__ float reciprocal_fast(float x) {
  float value;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

__device__ __forceinline__ float log2_fast(float x) {
  float value;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

/// Products of two bf16 each, rounded once: added to minus zero they keep their sign.
__device__ __forceinline__ uint32_t multiply_rounded(uint32_t x, uint32_t y) {
  uint32_t value;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(value) : "r"(x), "r"(y), "r"(0x80008000u));
  return value;
}

/// Orders the thread's accesses to shared memory before bulk copies that follow an arrival.
__device__ __forceinline__ void async_proxy_fence() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

__device__ __forceinline__ float sum_of_squares(const uint4& x) {
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t two = i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
    sum = fmaf(first_of(two), first_of(two), sum);
    sum = fmaf(second_of(two), second_of(two), sum);
  }
  return sum;
}

/// Eq. 9 of eight channels; x / rms is rounded before it meets the weight.
__device__ __forceinline__ uint4 normed(const uint4& x, float rho, const uint4& weight) {
  uint4 y;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
    const uint32_t w = i == 0 ? weight.x : i == 1 ? weight.y : i == 2 ? weight.z : weight.w;
    const uint32_t n = pack(first_of(from) * rho, second_of(from) * rho);
    (i == 0 ? y.x : i == 1 ? y.y : i == 2 ? y.z : y.w) = multiply_rounded(n, w);
  }
  return y;
}

}  // namespace mhar::kernels::hopper
