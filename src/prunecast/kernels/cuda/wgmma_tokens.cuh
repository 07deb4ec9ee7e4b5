// wgmma with the roles of `wgmma.cuh` swapped: 64 tokens times N rows of weights, 16 columns at a time.
//
// Contract: as there, but `lo` holds the first part of the rows of weights and `hi` the rest. Tokens are the
// operand of 64 rows, still token-major (transposed), weights the other one, still K-major.
#pragma once
#include "wgmma.cuh"

#define WGMMA_TOKENS(N, REGISTERS, T, W, P)                                                        \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                   \
  "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." ELEMENT "." ELEMENT " {" REGISTERS "}, " T ", " W \
  ", p, 1, 1, 1, 0;\n}\n"

__device__ __forceinline__ void multiply_tokens(float (&lo)[64], float (&hi)[64], u64 tokens, u64 weights,
                                                u32 keep) {
  asm volatile(WGMMA_TOKENS("256", R128, "%128", "%129", "%130")
               : OUT64(lo), OUT64(hi)
               : IN3(tokens, weights, keep));
}

__device__ __forceinline__ void multiply_tokens(float (&sums)[64], u64 tokens, u64 weights, u32 keep) {
  asm volatile(WGMMA_TOKENS("128", R64, "%64", "%65", "%66") : OUT64(sums) : IN3(tokens, weights, keep));
}
