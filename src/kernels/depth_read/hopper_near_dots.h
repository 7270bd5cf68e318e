#pragma once
// Dot products of rows by heads, on tensor cores. Of A B in m16n8k16 only the diagonal is used: lane 4 g + t puts its
// channels of one factor into row g of A and of the other into column g of B, so that element (g, g) is their product
// summed over the lanes 4 g .. 4 g + 3. Rows g + 8 take a second factor. Most of the multiplications are in vain, but
// nothing is unpacked for them: what would be held in fp32 stays bf16, and with half the registers run twice the warps.
//
// A key enters as two bf16, high and rest, as in the far passes: products with bf16 rows are then exact to 2^-17 of a
// channel's.
#include <type_traits>

#include "kernels/depth_read/hopper_ring.h"

namespace mhar::kernels::hopper {

/// A key in shared memory is two rows of bf16, a pitch apart; of vector (x, y, z, w), two channels each, the first
/// holds high and rest of one pair of letters and the second of the other, in the order of registers of A.
enum class Pairing { neighbours, alternate };  // (x, y) (z, w), or (x, z) (y, w)

/// Asks for a key in fp32: 16 bytes of lower and upper halves of vectors a pitch apart. Zeros follow both.
__device__ __forceinline__ void fetch_key(uint32_t to, const float* from, const RowShape& shape) {
  for (int at = static_cast<int>(threadIdx.x) * 16; at < shape.pitch; at += static_cast<int>(blockDim.x) * 16) {
    if (at < shape.bytes) {
      async_load<16>(to + at, from + at / 2);
      async_load<16>(to + shape.pitch + at, from + at / 2 + 4);
    } else {
      store_shared_16(to + at, make_uint4(0, 0, 0, 0));
      store_shared_16(to + shape.pitch + at, make_uint4(0, 0, 0, 0));
    }
  }
}

/// Splits it, `to` another such place or the same. A thread splits what it has fetched, so that its own
/// async_wait_all suffices.
template <Pairing kPairing>
__device__ __forceinline__ void split_key(uint32_t from, uint32_t to, const RowShape& shape) {
  for (int at = static_cast<int>(threadIdx.x) * 16; at < shape.pitch; at += static_cast<int>(blockDim.x) * 16) {
    float key[8];
    load_wide(key, from, at, shape.pitch);
    const uint4 high = pack(key);
    float rest[8];
    unpack(rest, high);
#pragma unroll
    for (int q = 0; q < 8; ++q) rest[q] = key[q] - rest[q];
    const uint4 low = pack(rest);
    if (kPairing == Pairing::neighbours) {
      store_shared_16(to + at, make_uint4(high.x, low.x, high.y, low.y));
      store_shared_16(to + shape.pitch + at, make_uint4(high.z, low.z, high.w, low.w));
    } else {
      store_shared_16(to + at, make_uint4(high.x, low.x, high.z, low.z));
      store_shared_16(to + shape.pitch + at, make_uint4(high.y, low.y, high.w, low.w));
    }
  }
}

__device__ __forceinline__ void multiply(float (&sum)[4], const uint4& a, uint32_t b0, uint32_t b1) {
  const uint32_t rows[4] = {a.x, a.y, a.z, a.w};
  multiply(sum, rows, b0, b1);
}

__device__ __forceinline__ uint4 masked(const uint4& value, bool kept) { return kept ? value : make_uint4(0, 0, 0, 0); }

/// A vector's share of sum += factor * key, of a key split with Pairing::alternate.
__device__ __forceinline__ void add_key(float (&sum)[8], float factor, uint32_t key, int pitch) {
  const uint4 xz = load_shared_16(key), yw = load_shared_16(key + pitch);
  add_scaled(sum, factor, make_uint4(xz.x, yw.x, xz.z, yw.z));
  add_scaled(sum, factor, make_uint4(xz.y, yw.y, xz.w, yw.w));
}

/// Reads diagonals and completes sums of heads.
class HeadSums {
 public:
  __device__ explicit HeadSums(int lanes)
      : lanes_(lanes), odd_((threadIdx.x & 4) != 0), holder_((threadIdx.x & 28) | (threadIdx.x & 31) >> 3) {}

  /// Heads that share four lanes, which take turns with the others' factors masked; otherwise 1.
  __device__ int turns() const { return lanes_ < 4 ? 4 / lanes_ : 1; }
  __device__ bool my_turn(int turn) const { return static_cast<int>(threadIdx.x & 3) / lanes_ == turn; }

  /// Sums over the lanes of the head: of the diagonals of rows g and of rows g + 8 in both products.
  __device__ float of_both(const float (&a)[4], const float (&b)[4]) const {
    return finish(odd_ ? (a[1] + a[3]) + (b[1] + b[3]) : (a[0] + a[2]) + (b[0] + b[2]));
  }

  /// Rows g of one product and g + 8 of the other.
  __device__ float of(const float (&upper)[4], const float (&lower)[4]) const {
    return finish(odd_ ? upper[1] + lower[3] : upper[0] + lower[2]);
  }

 private:
  __device__ float finish(float value) const {
    value = __shfl_sync(~0u, value, holder_);
    if (lanes_ > 4) {
      value += __shfl_xor_sync(~0u, value, 4);
      if (lanes_ > 8) value += __shfl_xor_sync(~0u, value, 8);
      if (lanes_ > 16) value += __shfl_xor_sync(~0u, value, 16);
    }
    return value;
  }

  int lanes_;
  bool odd_;
  int holder_;
};

}  // namespace mhar::kernels::hopper
