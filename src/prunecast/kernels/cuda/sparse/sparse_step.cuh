// One step of a consumer warpgroup of the sparse kernel: 64 columns of which 32 are kept, for one or two groups of rows.
//
// Contract: as `tile_multiply.cuh`. Places of kept values are read from shared memory just before they are used; steps
// that may be in the tensor pipe together hold theirs in variables of their own, so that two stand in the code. All
// steps are whole: what a tail lacks is zeros.
#pragma once
#include "sparse_multiply.cuh"
#include "tile_ring.cuh"

#define STEPS_APART 2  // steps that stand in the code one after another

using Sums = float[PART_SUMS];
using GroupSums = float[GROUP_SUMS];

struct Step {
  u64 weights, tokens;
  u32 places[ROW_GROUPS];

  // Both 32-column groups of the step for one group of rows
  __device__ __forceinline__ void multiply_group(int group, u32 keep, GroupSums& sums) const {
    const u64 own = weights + group * (GROUP_BYTES >> 4);
    multiply_sparse<0>(sums, own, tokens, places[group], keep);
    multiply_sparse<1>(sums, own + SPARSE_NEXT_K32, tokens + TOKENS_NEXT_K32, places[group], 1);
  }
};

// `weights`: where those of the block begin; those of the warpgroup begin `offset` behind.
__device__ __forceinline__ Step read_step(u32 weights, u32 offset, u32 tokens, int thread) {
  Step step{sparse_descriptor(weights + offset), tokens_descriptor(tokens)};
  const u32 from = weights + VALUE_BYTES + thread * ROW_GROUPS * 4;
  if constexpr (ROW_GROUPS == 2) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(step.places[0]), "=r"(step.places[ROW_GROUPS - 1])
                 : "r"(from)
                 : "memory");
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(step.places[0]) : "r"(from) : "memory");
  }
  return step;
}

// `keep` 0 starts new sums.
__device__ __forceinline__ void multiply_step(const Step& step, u32 keep, Sums& sums) {
  multiply_fence();
#pragma unroll
  for (int group = 0; group < ROW_GROUPS; ++group) {
    step.multiply_group(group, keep, reinterpret_cast<GroupSums&>(sums[group * GROUP_SUMS]));
  }
  multiply_commit();
}

__device__ __forceinline__ void multiply_tail(const Step& step, int, Sums& sums) { multiply_step(step, 1, sums); }
