// wgmma with the roles of `wgmma.cuh` swapped: 64 tokens times N rows of weights, 32 bytes of columns at a time.
//
// Contract: as there. Tokens are the operand of 64 rows, still token-major (transposed), weights the other one, still
// K-major. With FP8 tokens are K-major too, in runs of 32 columns.
#pragma once
#include "wgmma.cuh"

#if FP8
#define WGMMA_TOKENS(N, REGISTERS, T, W, P)                                                           \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                      \
  "wgmma.mma_async.sync.aligned.m64n" N "k32.f32.e4m3.e4m3 {" REGISTERS "}, " T ", " W ", p, 1, 1;\n}\n"
#else
#define WGMMA_TOKENS(N, REGISTERS, T, W, P)                                                        \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                   \
  "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." ELEMENT "." ELEMENT " {" REGISTERS "}, " T ", " W \
  ", p, 1, 1, 1, 0;\n}\n"
#endif

__device__ __forceinline__ void multiply_tokens(float (&sums)[128], u64 tokens, u64 weights, u32 keep) {
  asm volatile(WGMMA_TOKENS("256", R128, "%128", "%129", "%130")
               : OUT32(sums, 0), OUT32(sums, 32), OUT32(sums, 64), OUT32(sums, 96)
               : IN3(tokens, weights, keep));
}
