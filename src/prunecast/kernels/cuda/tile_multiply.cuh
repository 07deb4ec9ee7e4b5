// One step of a consumer warpgroup: 64 kept columns, 16 of them a multiplication.
//
// Contract: include after the sizes of the form. TOKENS_FIRST says which operand is the one of 64 rows.
#pragma once
#include "tile_ring.cuh"
#if TOKENS_FIRST
#include "wgmma_tokens.cuh"
#else
#include "wgmma.cuh"
#endif

#define STEPS_APART 1  // steps that stand in the code one after another

using Sums = float[PART_SUMS];

// Where the operands of a step lie.
struct Step {
  u64 weights, tokens;

  __device__ __forceinline__ void multiply_16(int k, u32 keep, Sums& sums) const {
#if TOKENS_FIRST
    multiply_tokens(sums, tokens + k * TOKENS_NEXT_K16, weights + k * WEIGHTS_NEXT_K16, keep);
#else
    multiply(sums, weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, keep);
#endif
  }
};

// `weights`: where those of the block begin; those of the warpgroup begin `offset` behind, its tokens at `tokens`.
__device__ __forceinline__ Step read_step(u32 weights, u32 offset, u32 tokens, int) {
  return {weights_descriptor(weights + offset), tokens_descriptor(tokens)};
}

// One full step; `keep` 0 starts new sums.
__device__ __forceinline__ void multiply_step(const Step& step, u32 keep, Sums& sums) {
  multiply_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) step.multiply_16(k, k == 0 ? keep : 1, sums);
  multiply_commit();
}

// A step of 1 to 4 groups of 16 columns, added to the sums. The last group shares its block with the commit.
__device__ __forceinline__ void multiply_tail(const Step& step, int k16, Sums& sums) {
  int k = 0;
#pragma unroll 1
  for (; k < k16 - 1; ++k) {
    multiply_fence();
    step.multiply_16(k, 1, sums);
  }
  multiply_fence();
  step.multiply_16(k, 1, sums);
  multiply_commit();
}
