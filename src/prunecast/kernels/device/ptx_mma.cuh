// PTX of mma.sync: products of a warp, 16 rows x 8 columns, sums in fp32; registers as in the PTX ISA.
#pragma once
#include "ptx.cuh"

#ifdef BF16
#define MMA_TYPES "f32.bf16.bf16.f32"
#else
#define MMA_TYPES "f32.f16.f16.f32"
#endif

// sums += a (16 x 16) b (16 x 8), from compute capability 8.0 on.
__device__ __forceinline__ void mma_16_8_16(float (&sums)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col." MMA_TYPES
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// sums += a (16 x 8) b (8 x 8) in fp16, from 7.5 on.
__device__ __forceinline__ void mma_16_8_8(float (&sums)[4], u32 a0, u32 a1, u32 b) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
               " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
               : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
               : "r"(a0), "r"(a1), "r"(b));
}
