#pragma once
// Instructions of compute capability 9.0 that CUDA C++ has no words for, one function each. Shared memory is addressed
// by its 32-bit window address. Elsewhere than on 9.0 the bodies are traps: the same file is compiled for older devices
// too, and host code asks the device before it launches any of this.
#include <cstdint>

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MHAR_HOPPER_ASM(...) __trap()
#else
#define MHAR_HOPPER_ASM(...) asm volatile(__VA_ARGS__)
#endif

namespace mhar::kernels::hopper {

__device__ __forceinline__ uint32_t shared_address(const void* at) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(at));
}

// ---- barriers in shared memory: 8 bytes each

__device__ __forceinline__ void barrier_init(uint32_t barrier, uint32_t arrivals) {
  MHAR_HOPPER_ASM("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/// Makes initialised barriers known to bulk copies; a __syncthreads follows.
__device__ __forceinline__ void barrier_init_fence() {
  MHAR_HOPPER_ASM("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/// Arrives and announces bytes that bulk copies will bring.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, uint32_t bytes) {
  MHAR_HOPPER_ASM("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  MHAR_HOPPER_ASM("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/// Waits for the end of the phase of this parity; parity 1 on a new barrier returns at once.
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  MHAR_HOPPER_ASM(
      "{\n.reg .pred done;\nAGAIN_%=:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra "
      "AGAIN_%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

/// Hands a slot back once `loaded`, the result of the lane's last load from it, is there: a load still queued must not
/// be overtaken by the copy that fills the slot again. Whole warp; one arrival.
__device__ __forceinline__ void barrier_release(uint32_t barrier, uint32_t loaded, int lane) {
  uint32_t one_bit = 1;
  MHAR_HOPPER_ASM("or.b32 %0, %1, 1;" : "=r"(one_bit) : "r"(loaded));
  __syncwarp();
  if (lane == 0 && one_bit != 0) barrier_arrive(barrier);
}

/// Waits until `threads` of the block, a multiple of 32, are at named barrier `id` (1 .. 15).
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- copies

/// Global to shared memory, multiples of 16 bytes at addresses that are such multiples. Call it in a branch of elect():
/// after `lane == 0`, or with an address that depends on the lane, ptxas emits a loop over lanes, 60 to 90 cycles a
/// copy.
__device__ __forceinline__ void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  MHAR_HOPPER_ASM("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                  "l"(from), "r"(bytes), "r"(barrier)
                  : "memory");
}

/// This thread's warp, in a form that the compiler knows to be the same for the whole warp: addresses that follow from
/// it then stay in uniform registers, which is what bulk copies take.
__device__ __forceinline__ int warp_of_block() { return __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0); }

/// True in one lane of a converged warp.
__device__ __forceinline__ bool elect() {
  uint32_t chosen = 0;
  MHAR_HOPPER_ASM("{\n.reg .pred P;\nelect.sync _|P, 0xffffffff;\nselp.u32 %0, 1, 0, P;\n}" : "=r"(chosen));
  return chosen != 0;
}

template <int kBytes>  // 4, 8 or 16
__device__ __forceinline__ void async_load(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
}

/// One arrival, when the thread's earlier async_loads have landed; it counts among those of barrier_init.
__device__ __forceinline__ void async_arrive(uint32_t barrier) {
  MHAR_HOPPER_ASM("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void async_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// ---- blocks of a cluster

/// All threads of all blocks of the cluster; orders their accesses to shared memory.
__device__ __forceinline__ void cluster_sync() {
  MHAR_HOPPER_ASM("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Address of the same place in the shared memory of the cluster's block `rank`.
__device__ __forceinline__ uint32_t cluster_address(uint32_t shared, uint32_t rank) {
  uint32_t address = 0;
  MHAR_HOPPER_ASM("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}

/// 16 bytes to a cluster_address; they count as announced bytes of the barrier there.
__device__ __forceinline__ void cluster_store_16(uint32_t to, const float (&value)[4], uint32_t barrier) {
  MHAR_HOPPER_ASM(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1,%2,%3,%4}, [%5];" ::"r"(to),
      "r"(__float_as_uint(value[0])), "r"(__float_as_uint(value[1])), "r"(__float_as_uint(value[2])),
      "r"(__float_as_uint(value[3])), "r"(barrier)
      : "memory");
}

// ---- order between kernels of a stream

/// Waits until all earlier kernels have ended and their results can be read.
__device__ __forceinline__ void wait_for_previous_kernel() { MHAR_HOPPER_ASM("griddepcontrol.wait;" ::: "memory"); }

/// Lets the next kernel start early. Only after wait_for_previous_kernel: otherwise the kernel after the next one could
/// read what this kernel's predecessor has not finished.
__device__ __forceinline__ void allow_next_kernel() {
  MHAR_HOPPER_ASM("griddepcontrol.launch_dependents;" ::: "memory");
}

// ---- matrix fragments: lane = 4 g + t

/// Four 8x8 matrices of 16-bit elements; lanes 8m .. 8m+7 give the rows of matrix m.
__device__ __forceinline__ void load_matrices(uint32_t (&fragment)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ void load_matrices_transposed(uint32_t (&fragment)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
               : "r"(row)
               : "memory");
}

__device__ __forceinline__ void store_matrices_transposed(uint32_t row, uint32_t f0, uint32_t f1, uint32_t f2,
                                                          uint32_t f3) {
  MHAR_HOPPER_ASM("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row), "r"(f0), "r"(f1),
                  "r"(f2), "r"(f3)
                  : "memory");
}

__device__ __forceinline__ void store_matrices_transposed(uint32_t row, uint32_t f0, uint32_t f1) {
  MHAR_HOPPER_ASM("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1,%2};" ::"r"(row), "r"(f0), "r"(f1)
                  : "memory");
}

__device__ __forceinline__ uint32_t transposed(uint32_t fragment) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(fragment));
  return result;
}

/// sum += A (16x16) B (16x8), bf16 factors. Element (row, column) of the sum: 0: (g, 2t), 1: (g, 2t+1), 2 and 3: g + 8.
__device__ __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// sum += A (16x8) B (8x8).
__device__ __forceinline__ void multiply(float (&sum)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

// ---- loads and stores

__device__ __forceinline__ float load_shared(uint32_t at) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
  return value;
}

__device__ __forceinline__ uint2 load_shared_8(uint32_t at) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0,%1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(at) : "memory");
  return value;
}

__device__ __forceinline__ uint4 load_shared_16(uint32_t at) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(at)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_shared(uint32_t at, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared(uint32_t at, uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}

__device__ __forceinline__ void store_shared_8(uint32_t at, uint2 value) {
  asm volatile("st.shared.v2.u32 [%0], {%1,%2};" ::"r"(at), "r"(value.x), "r"(value.y) : "memory");
}

__device__ __forceinline__ void store_shared_16(uint32_t at, uint4 value) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w)
               : "memory");
}

// ---- arithmetic

inline constexpr float kLog2OfE = 1.4426950408889634f;
inline constexpr float kLnOf2 = 0.6931471805599453f;

/// 2^x; 0 at minus infinity.
__device__ __forceinline__ float exp2_fast(float x) {
  float value;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
  return value;
}

/// Two floats rounded to bf16, the first in the lower half.
__device__ __forceinline__ uint32_t pack(float first, float second) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}

__device__ __forceinline__ float first_of(uint32_t packed) { return __uint_as_float(packed << 16); }
__device__ __forceinline__ float second_of(uint32_t packed) { return __uint_as_float(packed & 0xffff0000u); }

/// Makes the compiler forget what it knows of a packed value: otherwise it keeps the unpacked copies of one use for the
/// next, which doubles the registers and spills.
__device__ __forceinline__ void forget(uint4& value) {
  asm volatile("" : "+r"(value.x), "+r"(value.y), "+r"(value.z), "+r"(value.w));
}

/// The same sum in all of kLanes neighbouring lanes.
template <int kLanes>
__device__ __forceinline__ float sum_over_lanes(float value) {
#pragma unroll
  for (int step = 1; step < kLanes; step *= 2) value += __shfl_xor_sync(~0u, value, step);
  return value;
}

}  // namespace mhar::kernels::hopper

#undef MHAR_HOPPER_ASM
