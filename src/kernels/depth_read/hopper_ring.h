#pragma once
// What the near passes share. One warp takes one token at a time. Its rows arrive by bulk copies in a ring of shared
// memory that belongs to the warp alone: when it has read a row it sends for the row that is `depth` further on, of
// this token or a later one, into the same place. So nothing is handed between warps, a token may have more rows than
// the ring, and the number of rows is no template parameter.
//
// In a row of D bf16, lane (head, sub) owns V vectors of 8 channels of its head. Where a head has fewer vectors than
// its lanes have places, the places left over point at 16 bytes of zeros behind the row, so that nothing but stores
// asks.
#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/depth_read/depth_read.h"
#include "kernels/depth_read/hopper.h"
#include "kernels/depth_read/hopper_ptx.h"

namespace mhar::kernels::hopper {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kOnHopper = false;
#else
inline constexpr bool kOnHopper = true;
#endif

inline constexpr int kMostRows = 12;   // of a token: dy, o, stream, s, its partial gradient, 7 more dO
inline constexpr int kMostDepth = 16;  // of a ring: a lane makes one barrier

/// Vectors of 8 channels a lane has instances for. 8 and 16 serve what lies below them too, with places left over.
constexpr int vectors_of(const DepthSizes& z) {
  const int64_t lanes = 32 / z.heads;
  const int64_t needed = (z.width / z.heads / 8 + lanes - 1) / lanes;
  return static_cast<int>(needed <= 6 ? needed : needed <= 8 ? 8 : 16);
}

/// Up to this many vectors a lane has in registers, and beyond them in shared memory, what outlives a row: forward the
/// key and the source between its two uses, backward the source and the sums of the norm's weight gradient.
inline constexpr int kMostHeld = 6;

/// Warps of a block. Rows arrive faster than one warp gets through them, and a token is a long chain of sums over
/// lanes: 16 warps of a multiprocessor keep memory twice as busy as 8 with twice the registers.
template <int V>
inline constexpr int kWarps = V <= kMostHeld ? 8 : 4;

struct RowShape {
  int64_t tokens;  // P
  int width, heads;
  int bytes;  // of a row of bf16
  int pitch;  // of rows in shared memory: 16 more where places are left over
  int depth;  // rows in the ring of a warp, at most kMostDepth
};

inline RowShape row_shape(const DepthSizes& z) {
  RowShape s{};
  s.tokens = z.tokens;
  s.width = static_cast<int>(z.width);
  s.heads = static_cast<int>(z.heads);
  s.bytes = s.width * 2;
  s.pitch = s.bytes + (z.width == vectors_of(z) * 256 ? 0 : 16);
  return s;
}

/// The rows of a token in the order in which they are read.
struct Rows {
  const void* at[kMostRows];  // [P, D] each
  int count;
  unsigned late;  // bit of each row that the kernel ahead may still be writing when this one starts

  void add(const void* values, bool is_late) {
    late |= (is_late ? 1u : 0u) << count;
    at[count++] = values;
  }
};

template <int V>
struct Places {
  int lanes, head, sub;  // lanes of a head, this lane's head and its number among them
  uint32_t at[V];        // bytes into a row of bf16, or its end where there is no such vector

  __device__ explicit Places(const RowShape& shape) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    lanes = 32 / shape.heads, head = lane / lanes, sub = lane % lanes;
    const int vectors = shape.width / shape.heads / 8;
    // Eight lanes read 128 bytes at a time. Heads start each with another of their vectors so that these lie in
    // different banks whatever the distance of heads.
    const int turn = lanes < 8 ? (head * (V - 1) * (8 / lanes - 1)) % (8 / lanes) : 0;
#pragma unroll
    for (int j = 0; j < V; ++j) {
      const int vector = (j + turn) % V * lanes + sub;
      at[j] = vector < vectors ? (head * vectors + vector) * 16 : shape.bytes;
    }
  }

  /// Keeps addresses made of these from being computed ahead of a loop, where there are too many to hold.
  __device__ void forget() {
#pragma unroll
    for (int j = 0; j < V; ++j) asm volatile("" : "+r"(at[j]));
  }

  __device__ float sum_in_head(float value) const {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      if (step < lanes) value += __shfl_xor_sync(~0u, value, step);
    }
    return value;
  }

  /// Both at a time: their shuffles overlap.
  __device__ void sum_in_head(float& a, float& b) const {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      if (step < lanes) {
        const float other_a = __shfl_xor_sync(~0u, a, step), other_b = __shfl_xor_sync(~0u, b, step);
        a += other_a, b += other_b;
      }
    }
  }

  /// Of a value that is the same in all lanes of a head.
  __device__ float sum_of_heads(float value) const {
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      if (step >= lanes) value += __shfl_xor_sync(~0u, value, step);
    }
    return value;
  }
};

// Addresses advance by additions: with rows of 1 KB, products for each would be a twentieth of all instructions.
class Ring {
 public:
  /// Tokens first, first + step, ... of this warp. `depth` barriers are made here, for this warp alone.
  __device__ Ring(const Rows& rows, const RowShape& shape, int depth, int64_t first, int64_t step, uint32_t memory,
                  uint32_t barriers)
      : rows_(rows),
        shape_(shape),
        offset_(first * shape.bytes),
        step_(step * shape.bytes),
        end_(shape.tokens * shape.bytes),
        memory_(memory),
        barriers_(barriers),
        end_of_barriers_(barriers + depth * 8),
        slot_(memory),
        barrier_(barriers) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    if (lane < depth) {
      barrier_init(barriers + lane * 8, 1);
      if (shape.pitch > shape.bytes) {
        store_shared_16(memory + lane * shape.pitch + shape.bytes, make_uint4(0, 0, 0, 0));
      }
    }
    barrier_init_fence();
    __syncwarp();
  }

  /// Sends for those of the first rows, as many as the ring holds, that are late, or that are not; the late ones last.
  __device__ void begin(bool late) {
    int64_t offset = offset_;
    uint32_t slot = memory_;
    int row = 0;
    for (uint32_t barrier = barriers_; barrier < end_of_barriers_ && offset < end_; barrier += 8) {
      if (((rows_.late >> row & 1) != 0) == late) load(slot, barrier, offset, row);
      slot += shape_.pitch;
      if (++row == rows_.count) row = 0, offset += step_;
    }
    if (late) offset_ = offset, row_ = row;
  }

  /// Address of the next row, once it is there.
  __device__ uint32_t take() const {
    barrier_wait(barrier_, parity_);
    return slot_;
  }

  /// Gives the row back, after the warp's last load from it. Such a load may still be queued; it is done long before
  /// the copy that is sent for here comes back from memory.
  __device__ void give() {
    __syncwarp();
    if (offset_ < end_) {
      load(slot_, barrier_, offset_, row_);
      if (++row_ == rows_.count) row_ = 0, offset_ += step_;
    }
    const bool last = barrier_ + 8 == end_of_barriers_;
    slot_ = last ? memory_ : slot_ + shape_.pitch;
    barrier_ = last ? barriers_ : barrier_ + 8;
    parity_ ^= last ? 1 : 0;
  }

 private:
  __device__ void load(uint32_t slot, uint32_t barrier, int64_t offset, int row) const {
    const char* from = static_cast<const char*>(rows_.at[row]) + offset;
    if (elect()) {
      barrier_expect(barrier, shape_.bytes);
      bulk_load(slot, from, shape_.bytes, barrier);
    }
  }

  const Rows& rows_;
  const RowShape& shape_;
  int64_t offset_, step_;  // bytes of the token whose row is to be sent for next
  const int64_t end_;
  int row_ = 0;
  const uint32_t memory_, barriers_, end_of_barriers_;
  uint32_t slot_, barrier_;  // of the row to be read next
  uint32_t parity_ = 0;
};

__device__ __forceinline__ void unpack(float (&value)[8], const uint4& packed) {
  value[0] = first_of(packed.x), value[1] = second_of(packed.x), value[2] = first_of(packed.y);
  value[3] = second_of(packed.y), value[4] = first_of(packed.z), value[5] = second_of(packed.z);
  value[6] = first_of(packed.w), value[7] = second_of(packed.w);
}

__device__ __forceinline__ uint4 pack(const float (&value)[8]) {
  return make_uint4(pack(value[0], value[1]), pack(value[2], value[3]), pack(value[4], value[5]),
                    pack(value[6], value[7]));
}

/// A vector's share of sum += factor * value.
__device__ __forceinline__ void add_scaled(float (&sum)[8], float factor, const uint4& packed) {
  float value[8];
  unpack(value, packed);
#pragma unroll
  for (int q = 0; q < 8; ++q) sum[q] = fmaf(factor, value[q], sum[q]);
}

__device__ __forceinline__ float add_products(float sum, const float (&a)[8], const float (&b)[8]) {
#pragma unroll
  for (int q = 0; q < 8; ++q) sum = fmaf(a[q], b[q], sum);
  return sum;
}

__device__ __forceinline__ float add_squares(float sum, const uint4& packed) {
  float value[8];
  unpack(value, packed);
  return add_products(sum, value, value);
}

/// bf16(value * factor): a normalised row as it is rounded before it meets the weight (Eq. 9).
__device__ __forceinline__ uint4 scaled(const uint4& packed, float factor) {
  float value[8];
  unpack(value, packed);
#pragma unroll
  for (int q = 0; q < 8; ++q) value[q] *= factor;
  return pack(value);
}

__device__ __forceinline__ uint32_t product(uint32_t a, uint32_t b) {
  uint32_t result;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
  return result;
}

/// bf16(a * b): the product of two bf16 is exact in fp32, so one rounding is left either way.
__device__ __forceinline__ uint4 product(const uint4& a, const uint4& b) {
  return make_uint4(product(a.x, b.x), product(a.y, b.y), product(a.z, b.z), product(a.w, b.w));
}

__device__ __forceinline__ void store_16(void* row, uint32_t at, const uint4& value) {
  *reinterpret_cast<uint4*>(static_cast<char*>(row) + at) = value;
}

/// x of Eq. 42: what the norm after a gated read takes, from the mix as it is stored.
__device__ __forceinline__ uint4 gated(const uint4& stream, float gate, const uint4& mix) {
  if (gate == 0) return stream;
  float x[8];
  unpack(x, stream);
  add_scaled(x, gate, mix);
  return pack(x);
}

/// Asks for a row of bf16 in shared memory, with all threads of a block.
__device__ __forceinline__ void fetch_row(uint32_t to, const void* from, const RowShape& shape) {
  for (int at = static_cast<int>(threadIdx.x) * 16; at < shape.pitch; at += static_cast<int>(blockDim.x) * 16) {
    if (at < shape.bytes) {
      async_load<16>(to + at, static_cast<const char*>(from) + at);
    } else {
      store_shared_16(to + at, make_uint4(0, 0, 0, 0));
    }
  }
}

/// One vector of a row of fp32. In shared memory that is two rows, of the lower and of the upper halves of all vectors:
/// lanes that read 32 bytes each would meet in the same banks.
__device__ __forceinline__ void load_wide(float (&value)[8], uint32_t row, uint32_t at, int pitch) {
  const uint4 lower = load_shared_16(row + at), upper = load_shared_16(row + pitch + at);
  value[0] = __uint_as_float(lower.x), value[1] = __uint_as_float(lower.y), value[2] = __uint_as_float(lower.z);
  value[3] = __uint_as_float(lower.w), value[4] = __uint_as_float(upper.x), value[5] = __uint_as_float(upper.y);
  value[6] = __uint_as_float(upper.z), value[7] = __uint_as_float(upper.w);
}

__device__ __forceinline__ void store_wide(uint32_t row, uint32_t at, int pitch, const float (&value)[8]) {
  store_shared_16(row + at, make_uint4(__float_as_uint(value[0]), __float_as_uint(value[1]), __float_as_uint(value[2]),
                                       __float_as_uint(value[3])));
  store_shared_16(row + pitch + at, make_uint4(__float_as_uint(value[4]), __float_as_uint(value[5]),
                                               __float_as_uint(value[6]), __float_as_uint(value[7])));
}

/// Bytes of shared memory for each of `blocks` on a multiprocessor; 1024 of each are the system's.
constexpr int shared_of(int blocks) { return (kMostShared + 1024) / blocks / 128 * 128 - 1024; }

/// Ring depth for `room` bytes of each warp.
inline int ring_depth(const RowShape& shape, int64_t warps, int rows, int64_t room) {
  const int64_t tokens = (shape.tokens + warps - 1) / warps;
  return static_cast<int>(std::min({room / shape.pitch, int64_t{kMostDepth}, tokens * rows}));
}

inline int64_t near_blocks(int64_t tokens, int warps, int64_t per_multiprocessor) {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return std::min((tokens + warps - 1) / warps, per_multiprocessor * count);
}

/// Launches so that the kernel may start before the one ahead of it ends.
template <typename Arguments>
int launch_early(void (*kernel)(Arguments), const Arguments& arguments, int64_t blocks, int threads, int64_t shared,
                 void* stream) {
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared));
  if (status != cudaSuccess) return status;
  // One split of L1 and shared memory for all passes: a multiprocessor must be idle to change it.
  status = cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments);
}

/// Calls launch.template operator()<V>() for the instance of the shape.
template <typename Launch>
int for_vectors(const DepthSizes& z, const Launch& launch) {
  switch (vectors_of(z)) {
    case 1:
      return launch.template operator()<1>();
    case 2:
      return launch.template operator()<2>();
    case 3:
      return launch.template operator()<3>();
    case 4:
      return launch.template operator()<4>();
    case 5:
      return launch.template operator()<5>();
    case 6:
      return launch.template operator()<6>();
    case 8:
      return launch.template operator()<8>();
    default:
      return launch.template operator()<16>();
  }
}

}  // namespace mhar::kernels::hopper
