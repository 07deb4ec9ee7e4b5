// The sums of split tiles, one group of 64 rows after the other: from a part to the workspace, from there to the owner.
//
// Contract: a tile's parts have the same registers. A warp of a part counts one up where the same warp of the owner
// waits; the owner is part 0, adds the others in their order, so that a result is the same in every run, and sets its
// counters back to zero. Blocks that wait are resident together with those they wait for.
#pragma once
#include "sparse_args.cuh"
#include "sparse_shape.cuh"

constexpr int WHOLE = 0, PART = 1, OWNER = 2;
constexpr int SUM_QUADS = BLOCK_N / 8;  // float4 of a thread
constexpr int QUADS_AT_ONCE = 8;        // in registers beside all sums

static_assert(SUM_QUADS % QUADS_AT_ONCE == 0, "sums come in whole rounds");

__device__ __forceinline__ int warp_of_group(int group) { return group * CONSUMER_WARPS + threadIdx.x / 32 - 4; }

__device__ __forceinline__ u32* counter_of(const SparseArgs& args, int4 split, int group) {
  return args.counters + split.z * 2 * CONSUMER_WARPS + warp_of_group(group);
}

// Where the sums of this thread lie.
__device__ __forceinline__ float4* place_of_sums(const SparseArgs& args, int slot, int group) {
  const i64 block = static_cast<i64>(slot) * GROUPS * CONSUMER_WARPS + warp_of_group(group);
  return args.partials + block * SUM_QUADS * 32 + threadIdx.x % 32;
}

__device__ __forceinline__ void hand_over(const SparseArgs& args, const Sums& sums, int4 split, int group) {
  float4* to = place_of_sums(args, split.x, group);
#pragma unroll
  for (int quad = 0; quad < SUM_QUADS; ++quad) {
    const float* s = sums + 4 * quad;
    to[quad * 32] = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) signal_add(counter_of(args, split, group));
}

__device__ __forceinline__ void add_part(Sums& sums, const float4* from) {
#pragma unroll
  for (int first = 0; first < SUM_QUADS; first += QUADS_AT_ONCE) {
    float4 v[QUADS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < QUADS_AT_ONCE; ++i) v[i] = load_past_l1(from + (first + i) * 32);
#pragma unroll
    for (int i = 0; i < QUADS_AT_ONCE; ++i) {
      float* s = sums + 4 * (first + i);
      s[0] += v[i].x;
      s[1] += v[i].y;
      s[2] += v[i].z;
      s[3] += v[i].w;
    }
  }
}

__device__ __forceinline__ void take_over(const SparseArgs& args, Sums& sums, int4 split, int group) {
  if (threadIdx.x % 32 == 0) {
    u32* counter = counter_of(args, split, group);
    Patience patience;
    while (load_acquire(counter) != static_cast<u32>(split.y)) patience.spend();
    *counter = 0;
  }
  __syncwarp();
#pragma unroll 1
  for (int part = 0; part < split.y; ++part) add_part(sums, place_of_sums(args, split.x + part, group));
}
