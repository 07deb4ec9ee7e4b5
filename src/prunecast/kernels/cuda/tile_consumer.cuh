// The two consumer warpgroups: wait for a stage, multiply, give the stage before it back, write C.
//
// Contract: one step is in the tensor pipe while the next is issued. With SKEW the last step of an item and the
// first of the next are multiplied in two halves of the tokens, so that each half of C is written while the
// tensor cores work on the other. Items have at least two steps.
//
// The compiler serialises multiplications, which the build refuses, when instructions of different widths share
// registers. `retie` makes them different variables, which it then keeps in the same registers without a move;
// that needs all multiplications finished, while the other warpgroup keeps the tensor cores at work.
#pragma once
#include "tile_epilogue.cuh"
#include "tile_ring.cuh"
#include "wgmma.cuh"

constexpr u64 HIGH_OFFSET = LOW_TOKENS / 64 * (TOKEN_BLOCK_BYTES >> 4);
using Low = float[LOW_TOKENS / 2];
using High = float[HIGH_TOKENS / 2];

struct Consumer {
  const TileArgs& args;
  Ring ring;
  u32 held = 0;  // empty barrier of the slot that is to be given back next; 0 for none
  u32 staging;
  int warp, lane;
  u32 weights_offset, tokens_offset;

  __device__ __forceinline__ Consumer(const TileArgs& tile_args, u32 base, int thread)
      : args(tile_args), ring(base), warp(thread / 32), lane(thread % 32) {
    staging = base + STAGING_AT + warp * WARP_STAGING_BYTES;
    const int group = thread / WARPGROUP;
    weights_offset = SPLIT_ROWS ? group * 64 * 128 : 0;
    tokens_offset = SPLIT_ROWS ? 0 : group * (PART_TOKENS / 64) * TOKEN_BLOCK_BYTES;
  }

  __device__ __forceinline__ u64 weights() const { return weights_descriptor(ring.weights() + weights_offset); }
  __device__ __forceinline__ u64 tokens() const { return tokens_descriptor(ring.tokens() + tokens_offset); }

  __device__ __forceinline__ void wait_full() const {
    barrier_wait(ring.full(), ring.parity);
#if FENCE
    fence_async_proxy();
#endif
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
};

template <int COUNT>
__device__ __forceinline__ void retie(float (&sums)[COUNT]) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    float same;
    asm volatile("mov.f32 %0, %1;" : "=f"(same) : "f"(sums[i]));
    sums[i] = same;
  }
}

// One full step; `keep` 0 starts new sums.
template <class... Sums>
__device__ __forceinline__ void multiply_step(u64 weights, u64 tokens, u32 keep, Sums&... sums) {
  multiply_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    multiply(sums..., weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, k == 0 ? keep : 1);
  }
  multiply_commit();
}

// A step of 1 to 4 groups of 16 columns, added to the sums. The last group shares its block with the commit.
template <class... Sums>
__device__ __forceinline__ void multiply_tail(u64 weights, u64 tokens, int k16, Sums&... sums) {
  int k = 0;
#pragma unroll 1
  for (; k < k16 - 1; ++k) {
    multiply_fence();
    multiply(sums..., weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, 1);
  }
  multiply_fence();
  multiply(sums..., weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, 1);
  multiply_commit();
}

// Steps 1 to the one before the last.
__device__ __forceinline__ void middle_steps(Consumer& me, int steps, Low& low, High& high) {
#pragma unroll 1
  for (int step = 1; step < steps - 1; ++step) {
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 1, low, high);
    multiply_wait<1>();
    me.release();
    me.hold();
  }
}

#if SKEW

// All steps but the first; afterwards the low sums are complete and the high ones under way.
__device__ __forceinline__ void multiply_rest(Consumer& me, int4 item, Low& low, High& high) {
  multiply_wait<0>();
  me.release();
  retie(low);
  retie(high);
  middle_steps(me, steps_of(item), low, high);
  me.wait_full();
  multiply_wait<0>();
  me.release();
  retie(low);
  retie(high);
  multiply_tail(me.weights(), me.tokens(), last_k16(item), low);
  multiply_tail(me.weights(), me.tokens() + HIGH_OFFSET, last_k16(item), high);
  me.hold();
  multiply_wait<1>();
}

__device__ __forceinline__ void consume(const TileArgs& args, ItemRange range, u32 base, int thread) {
  Consumer me(args, base, thread);
  Low low;
  High high;
  int4 item = first_item(args);
  Ending ending = prepare_ending(args, range.begin, item, me.warp, me.lane);
  me.wait_full();
  multiply_step(me.weights(), me.tokens(), 0, low);
  multiply_step(me.weights(), me.tokens() + HIGH_OFFSET, 0, high);
  me.hold();
  for (int i = range.begin + 1; i < range.end; ++i) {
    const int4 next = load_early(args.items + i);
    multiply_rest(me, item, low, high);
    finish<0, LOW_TOKENS>(args, low, ending, me.staging, me.warp, me.lane);
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 0, low);
    multiply_wait<1>();
    me.release();
    finish<1, HIGH_TOKENS>(args, high, ending, me.staging, me.warp, me.lane);
    multiply_step(me.weights(), me.tokens() + HIGH_OFFSET, 0, high);
    me.hold();
    item = next;
    ending = prepare_ending(args, i, item, me.warp, me.lane);
  }
  multiply_rest(me, item, low, high);
  finish<0, LOW_TOKENS>(args, low, ending, me.staging, me.warp, me.lane);
  multiply_wait<0>();
  finish<1, HIGH_TOKENS>(args, high, ending, me.staging, me.warp, me.lane);
}

#else

__device__ __forceinline__ void consume(const TileArgs& args, ItemRange range, u32 base, int thread) {
  Consumer me(args, base, thread);
  Low low;
  High high;
  int4 item = first_item(args);
  for (int i = range.begin; i < range.end; ++i) {
    const int4 next = i + 1 < range.end ? load_early(args.items + i + 1) : item;
    const Ending ending = prepare_ending(args, i, item, me.warp, me.lane);
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 0, low, high);
    me.hold();
    middle_steps(me, steps_of(item), low, high);
    me.wait_full();
    multiply_tail(me.weights(), me.tokens(), last_k16(item), low, high);
    multiply_wait<1>();
    me.release();
    me.hold();
    multiply_wait<0>();
    me.release();
    finish<0, LOW_TOKENS>(args, low, ending, me.staging, me.warp, me.lane);
    finish<1, HIGH_TOKENS>(args, high, ending, me.staging, me.warp, me.lane);
    item = next;
  }
}

#endif
