// wgmma with sparse weights: 64 rows times N tokens, 32 columns of which 16 are kept, into fp32 sums.
//
// Contract: the kept values are K-major in shared memory, 64 bytes a row with the 64-byte swizzle; tokens are
// token-major with the 128-byte swizzle. The places of the values come in one register a thread, which serves two
// instructions: the lower and the upper two lanes of every quad (HALF 0 and 1) hold those of 32 columns each.
// `keep` 0 overwrites the sums. No register of an unfinished instruction may be touched, the places included.
#pragma once
#include "wgmma.cuh"

#define WGMMA_SPARSE(N, REGISTERS, W, T, E, HALF, P)                                                      \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                          \
  "wgmma.mma_async.sp.sync.aligned.m64n" N "k32.f32." ELEMENT "." ELEMENT " {" REGISTERS "}, " W ", " T ", " E \
  ", " HALF ", p, 1, 1, 0, 1;\n}\n"
#define IN_SPARSE(weights, tokens, places, keep) "l"(weights), "l"(tokens), "r"(places), "n"(HALF), "r"(keep)

template <int HALF>
__device__ __forceinline__ void multiply_sparse(float (&sums)[128], u64 weights, u64 tokens, u32 places, u32 keep) {
  asm volatile(WGMMA_SPARSE("256", R128, "%128", "%129", "%130", "%131", "%132")
               : OUT64(sums), OUT32(sums, 64), OUT32(sums, 96)
               : IN_SPARSE(weights, tokens, places, keep));
}

template <int HALF>
__device__ __forceinline__ void multiply_sparse(float (&sums)[64], u64 weights, u64 tokens, u32 places, u32 keep) {
  asm volatile(WGMMA_SPARSE("128", R64, "%64", "%65", "%66", "%67", "%68")
               : OUT64(sums)
               : IN_SPARSE(weights, tokens, places, keep));
}

template <int HALF>
__device__ __forceinline__ void multiply_sparse(float (&sums)[32], u64 weights, u64 tokens, u32 places, u32 keep) {
  asm volatile(WGMMA_SPARSE("64", R32, "%32", "%33", "%34", "%35", "%36")
               : OUT32(sums, 0)
               : IN_SPARSE(weights, tokens, places, keep));
}

// ---- matrix descriptors, see wgmma.cuh

constexpr u64 SWIZZLE_64 = 2ull << 62;
constexpr u64 SPARSE_ROWS_8 = 32ull << 32;  // 512 bytes from 8 rows to the next 8
constexpr u64 SPARSE_NEXT_K32 = 2;          // 16 kept values along a row
constexpr u64 TOKENS_NEXT_K32 = 2 * TOKENS_NEXT_K16;

__device__ __forceinline__ u64 sparse_descriptor(u32 address) {
  return SWIZZLE_64 | SPARSE_ROWS_8 | static_cast<u64>(address >> 4);
}
