// The two consumer warpgroups: wait for a stage, multiply, give the stage before it back, write C.
//
// Contract: one step is in the tensor pipe while the next is issued. With two groups of rows, the last step of an
// item and the first of the next are multiplied group by group, so that each group's rows of C are written while
// the tensor cores work on the other. Items have at least two steps.
//
// Places are read from shared memory just before they are used. Steps that may be in the tensor pipe together
// hold theirs in variables of their own.
#pragma once
#include "sparse_epilogue.cuh"
#include "sparse_multiply.cuh"
#include "tile_ring.cuh"

struct Places {
  u32 of_group[GROUPS];
};

struct Consumer {
  const SparseArgs& args;
  Ring ring;
  u32 held = 0;  // empty barrier of the slot that is to be given back next; 0 for none
  u32 staging;
  u32 weights_offset, places_offset;
  int first_row;  // of this warp's 16 rows in the first group
  int lane;

  __device__ __forceinline__ Consumer(const SparseArgs& sparse_args, u32 base, int thread)
      : args(sparse_args), ring(base), lane(thread % 32) {
    const int warp = thread / 32, part = thread / WARPGROUP;
    staging = base + STAGING_AT + warp * CHUNK_BYTES;
    weights_offset = part * GROUPS * GROUP_BYTES;
    places_offset = VALUE_BYTES + thread * GROUPS * 4;
    first_row = part * GROUPS * 64 + warp % 4 * 16;
  }

  __device__ __forceinline__ u64 weights() const { return sparse_descriptor(ring.weights() + weights_offset); }
  __device__ __forceinline__ u64 tokens() const { return tokens_descriptor(ring.tokens()); }

  __device__ __forceinline__ Places wait_full() const {
    barrier_wait(ring.full(), ring.parity);
#if FENCE
    fence_async_proxy();
#endif
    Places places;
    const u32 from = ring.weights() + places_offset;
    if constexpr (GROUPS == 2) {
      asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                   : "=r"(places.of_group[0]), "=r"(places.of_group[GROUPS - 1])
                   : "r"(from)
                   : "memory");
    } else {
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(places.of_group[0]) : "r"(from) : "memory");
    }
    return places;
  }

  __device__ __forceinline__ void release() {
    if (threadIdx.x % WARPGROUP == 0 && held != 0) barrier_arrive(held);
    held = 0;
  }

  // The slot at hand becomes the one that is given back next.
  __device__ __forceinline__ void hold() {
    held = ring.empty();
    ring.advance();
  }

  __device__ __forceinline__ Ending ending(int place, int4 item, int group) const {
    return prepare_ending(args, place, item, first_row + group * 64, lane);
  }

  __device__ __forceinline__ void finish(int place, int4 item, int group, Sums& sums, const Ending& ending) const {
    ::finish(args, place, sums, ending, group, item.w, staging, lane);
  }
};

// Both 32-column groups of a step for one group of rows; `keep` 0 starts new sums.
__device__ __forceinline__ void multiply_group(const Consumer& me, int group, const Places& places, u32 keep,
                                               Sums& sums) {
  const u64 weights = me.weights() + group * (GROUP_BYTES >> 4), tokens = me.tokens();
  multiply_sparse<0>(sums, weights, tokens, places.of_group[group], keep);
  multiply_sparse<1>(sums, weights + SPARSE_NEXT_K32, tokens + TOKENS_NEXT_K32, places.of_group[group], 1);
}

// A whole step between the first and the last of an item.
__device__ __forceinline__ void middle_step(Consumer& me, Sums (&sums)[GROUPS]) {
  const Places places = me.wait_full();
  multiply_fence();
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) multiply_group(me, group, places, 1, sums[group]);
  multiply_commit();
  multiply_wait<1>();
  me.release();
  me.hold();
}

__device__ __forceinline__ void middle_steps(Consumer& me, int steps, Sums (&sums)[GROUPS]) {
  int left = steps - 2;
#pragma unroll 1
  for (; left > 1; left -= 2) {
    middle_step(me, sums);
    middle_step(me, sums);
  }
  if (left) middle_step(me, sums);
}

// One group of one step by itself.
__device__ __forceinline__ void multiply_alone(const Consumer& me, int group, const Places& places, u32 keep,
                                               Sums& sums) {
  multiply_fence();
  multiply_group(me, group, places, keep, sums);
  multiply_commit();
}

#if BLOCK_M == 256

// Steps 1 to the last; afterwards the first group's sums are complete and the second's under way.
__device__ __forceinline__ void multiply_rest(Consumer& me, int4 item, Sums (&sums)[GROUPS]) {
  middle_steps(me, steps_of(item), sums);
  const Places places = me.wait_full();
  multiply_alone(me, 0, places, 1, sums[0]);
  multiply_alone(me, 1, places, 1, sums[1]);
  multiply_wait<2>();
  me.release();
  me.hold();
  multiply_wait<1>();
}

__device__ __forceinline__ void consume(const SparseArgs& args, ItemRange range, u32 base, int thread) {
  Consumer me(args, base, thread);
  Sums sums[GROUPS];
  int4 item = first_item(args);
  Ending upper = me.ending(range.begin, item, 0), lower = me.ending(range.begin, item, 1);
  {
    const Places places = me.wait_full();
    multiply_alone(me, 0, places, 0, sums[0]);
    multiply_alone(me, 1, places, 0, sums[1]);
    me.hold();
  }
  for (int i = range.begin + 1; i < range.end; ++i) {
    const int4 next = load_early(args.items + i);
    multiply_rest(me, item, sums);
    me.finish(i - 1, item, 0, sums[0], upper);
    const Places places = me.wait_full();
    multiply_alone(me, 0, places, 0, sums[0]);
    upper = me.ending(i, next, 0);
    multiply_wait<1>();
    me.release();
    me.finish(i - 1, item, 1, sums[1], lower);
    multiply_alone(me, 1, places, 0, sums[1]);
    me.hold();
    item = next;
    lower = me.ending(i, item, 1);
  }
  multiply_rest(me, item, sums);
  me.finish(range.end - 1, item, 0, sums[0], upper);
  multiply_wait<0>();
  me.finish(range.end - 1, item, 1, sums[1], lower);
}

#else

__device__ __forceinline__ void consume(const SparseArgs& args, ItemRange range, u32 base, int thread) {
  Consumer me(args, base, thread);
  Sums sums[GROUPS];
  int4 item = first_item(args);
  for (int i = range.begin; i < range.end; ++i) {
    const int4 next = i + 1 < range.end ? load_early(args.items + i + 1) : item;
    const Ending ending = me.ending(i, item, 0);
    const Places first = me.wait_full();
    multiply_alone(me, 0, first, 0, sums[0]);
    me.hold();
    middle_steps(me, steps_of(item), sums);
    const Places last = me.wait_full();
    multiply_alone(me, 0, last, 1, sums[0]);
    multiply_wait<1>();
    me.release();
    me.hold();
    multiply_wait<0>();
    me.release();
    me.finish(i, item, 0, sums[0], ending);
    item = next;
  }
}

#endif
