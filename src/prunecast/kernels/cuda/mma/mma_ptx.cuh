// PTX of the mma.sync tile kernel: tensor instructions of a warp, the reads of their fragments, groups of copies.
//
// Contract: weights are the row operand, one 16-byte load per lane brings 16 rows x 16 columns of them; tokens are
// the column operand, read transposed out of rows of tokens, 16 columns x 16 tokens at a time. sm_75 has only the
// half-deep instruction, whose two fragments are the halves of the deep one's, so that both read the same images.
#pragma once
#include "mma_shape.cuh"
#include "ptx.cuh"

struct Weights {  // 16 rows x 16 columns, or what is kept of 32
  u32 r[4];
};
struct Tokens {  // 16 columns x 16 tokens, two operands of 8 tokens; with SPARSE 32 columns x 8 tokens, one operand
  u32 r[4];
};

__device__ __forceinline__ void read(Weights& w, u32 from) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(w.r[0]), "=r"(w.r[1]), "=r"(w.r[2]), "=r"(w.r[3])
               : "r"(from)
               : "memory");
}

// Lane l names row l mod 16, chunk l / 16 of the two; with SPARSE row l.
__device__ __forceinline__ void read(Tokens& t, u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(t.r[0]), "=r"(t.r[1]), "=r"(t.r[2]), "=r"(t.r[3])
               : "r"(from)
               : "memory");
}

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif

__device__ __forceinline__ void multiply(float (&sums)[4], const Weights& w, u32 low, u32 high) {
#if ASYNC
  asm volatile("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "r"(low), "r"(high));
#else
  asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
               " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(w.r[0]), "r"(w.r[1]), "r"(low));
  asm volatile("mma.sync.aligned.m16n8k8.row.col." MMA_TYPES
               " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(w.r[2]), "r"(w.r[3]), "r"(high));
#endif
}

#if SPARSE
// 16 of 32 columns of every row, at the places that lanes 2 HALF and 2 HALF + 1 of each quad hold.
template <int HALF>
__device__ __forceinline__ void multiply_sparse(float (&sums)[4], const Weights& w, const Tokens& t, u32 places) {
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col." MMA_TYPES
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "r"(t.r[0]), "r"(t.r[1]), "r"(t.r[2]),
                 "r"(t.r[3]), "r"(places), "n"(HALF));
}
#endif

// ---- copies

// Copies without branches, so that the compiler can put them between products.

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

__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most PENDING of this thread's groups are on their way.
template <int PENDING>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ uint4 load_early_16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ __forceinline__ void write_shared_16(u32 to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
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

// ---- launches that overlap

__device__ __forceinline__ void mma_let_next_start() {
#if PDL && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
  let_next_launch_start();
#endif
}

__device__ __forceinline__ void mma_wait_for_last() {
#if PDL && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
  wait_for_last_launch();
#endif
}
