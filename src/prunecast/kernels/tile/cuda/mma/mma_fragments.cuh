// Fragments of the mma.sync tile kernel: loads from shared memory, and products.
//
// Contract: weights are the row operand (A); one 16-byte load per lane reads 16 rows x 16 columns. Tokens are the
// column operand (B), read with a transposing load from rows of tokens, 16 columns x 16 tokens at a time. sm_75 has
// only the instruction of half the depth; its two fragments are the halves of the deeper one's, so that both use the
// same packed weights.
#pragma once
#include "mma_shape.cuh"
#include "ptx_mma.cuh"

struct Weights {  // 16 rows x 16 columns, or the 16 kept values of 32
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

// Lane l passes the address of row l mod 16 and chunk l / 16 of two; with SPARSE of row l.
__device__ __forceinline__ void read(Tokens& t, u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(t.r[0]), "=r"(t.r[1]), "=r"(t.r[2]), "=r"(t.r[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void multiply(float (&sums)[4], const Weights& w, u32 low, u32 high) {
#if ASYNC
  mma_16_8_16(sums, w.r[0], w.r[1], w.r[2], w.r[3], low, high);
#else
  mma_16_8_8(sums, w.r[0], w.r[1], low);
  mma_16_8_8(sums, w.r[2], w.r[3], high);
#endif
}

#if SPARSE
// 16 of 32 columns of every row; lanes 2 HALF and 2 HALF + 1 of each quad hold their positions (metadata).
template <int HALF>
__device__ __forceinline__ void multiply_sparse(float (&sums)[4], const Weights& w, const Tokens& t, u32 places) {
  asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col." MMA_TYPES
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "r"(t.r[0]), "r"(t.r[1]), "r"(t.r[2]),
                 "r"(t.r[3]), "r"(places), "n"(HALF));
}
#endif
