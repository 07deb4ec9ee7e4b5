// PTX of the small-n kernel: copies into shared memory, tensor instructions of a warp, grid dependencies.
//
// Contract: compute capability 8.0 or later. Shared addresses are 32-bit. Copies of a thread form groups, in
// order; what a group brought is seen by the thread that copied it once `wait_groups` has returned, and by the
// other threads of its warp after a `__syncwarp` behind that. Below 9.0 grid dependencies are empty.
#pragma once

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

__device__ __forceinline__ u32 small_shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ u64 small_nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// ---- copies: BYTES is 4, 8 or 16, both addresses are multiples of it

// Read once: past the L1, 256 bytes at a time into the L2.
__device__ __forceinline__ void copy_stream_16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// The first `valid` bytes are read, the rest of BYTES is zeros; 0 reads nothing.
template <int BYTES>
__device__ __forceinline__ void copy_valid(u32 to, const void* from, u32 valid) {
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16);
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from), "n"(BYTES), "r"(valid)
               : "memory");
}

__device__ __forceinline__ void commit_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most PENDING of this thread's groups are on their way.
template <int PENDING>
__device__ __forceinline__ void wait_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- shared and global memory

__device__ __forceinline__ uint4 read_shared_16(u32 from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ uint2 read_shared_8(u32 from) {
  uint2 v;
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ u32 read_shared_4(u32 from) {
  u32 v;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ void write_shared_4(u32 to, u32 v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(v) : "memory");
}

__device__ __forceinline__ void write_shared_16(u32 to, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

__device__ __forceinline__ float2 read_shared_sums(u32 from) {
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from) : "memory");
  return v;
}

// Constants of a layer, issued where they are written.
__device__ __forceinline__ uint2 load_constant(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  return v;
}

__device__ __forceinline__ int2 load_constant(const int2* from) {
  int2 v;
  asm volatile("ld.global.nc.v2.s32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  return v;
}

__device__ __forceinline__ int load_constant(const int* from) {
  int v;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

// ---- tensor cores

// sums (16 rows x 8) += a (16 x 16) b (16 x 8); registers as in the PTX ISA, mma.m16n8k16.
__device__ __forceinline__ void multiply_16_8_16(float (&sums)[4], uint4 a, u32 b_low, u32 b_high) {
#ifdef BF16
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
#else
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
#endif
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b_low), "r"(b_high));
}

// ---- launches that overlap

__device__ __forceinline__ void small_let_next_start() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void small_wait_for_last() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
