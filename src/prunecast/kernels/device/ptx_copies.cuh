// PTX of cp.async: copies of 4 to 16 bytes into shared memory, from compute capability 8.0 on.
//
// Contract: both addresses are multiples of what is copied. Copies of a thread form groups, in order; what a group
// brought is seen by the thread that copied it once `wait_copies` has returned, and by the other threads of its warp
// after a `__syncwarp` behind that.
#pragma once

// 16 bytes through L2; 0 bytes read leave 16 zeros.
__device__ __forceinline__ void copy_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// 16 bytes of row `row` of a matrix through L2; 16 zeros, and nothing read, where the row is negative.
__device__ __forceinline__ void copy_16_of_row(u32 to, const void* column, int row, int row_bytes) {
  asm volatile(
      "{\n.reg .pred none;\n.reg .b64 from;\n"
      "setp.lt.s32 none, %2, 0;\n"
      "mad.wide.s32 from, %2, %3, %1;\n"
      "cp.async.cg.shared.global [%0], [from], 16, none;\n}\n" ::"r"(to),
      "l"(column), "r"(row), "r"(row_bytes)
      : "memory");
}

// 16 bytes through L2, or 16 zeros without reading if `none`.
__device__ __forceinline__ void copy_16_unless(u32 to, const void* from, bool none) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, p;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<u32>(none))
      : "memory");
}

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

// ---- copies without branches, so that the compiler can put them between products

// Weights, 16 bytes of a contiguous run.
__device__ __forceinline__ void copy_stream_16_if(bool wanted, u32 to, const void* from) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "@p cp.async.cg.shared.global.L2::256B [%0], [%1], 16;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<u32>(wanted))
      : "memory");
}

__device__ __forceinline__ void copy_16_if(bool wanted, u32 to, const void* from) {
  asm volatile(
      "{\n.reg .pred p;\n"
      "setp.ne.b32 p, %2, 0;\n"
      "@p cp.async.cg.shared.global [%0], [%1], 16;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<u32>(wanted))
      : "memory");
}

// 16 bytes of row `row` of a matrix, 16 zeros where the row is negative; nothing unless `wanted`.
__device__ __forceinline__ void copy_16_of_row_if(bool wanted, u32 to, const void* column, int row, int row_bytes) {
  asm volatile(
      "{\n.reg .pred none;\n.reg .pred p;\n.reg .b64 from;\n"
      "setp.lt.s32 none, %2, 0;\n"
      "setp.ne.b32 p, %4, 0;\n"
      "mad.wide.s32 from, %2, %3, %1;\n"
      "@p cp.async.cg.shared.global [%0], [from], 16, none;\n}\n" ::"r"(to),
      "l"(column), "r"(row), "r"(row_bytes), "r"(static_cast<u32>(wanted))
      : "memory");
}

// ---- groups of copies

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most PENDING of this thread's groups are on their way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}
