// The two consumer warpgroups: wait for a stage, multiply, give the stage before it back, write C.
//
// Contract: one step is always in the tensor pipe while the next is issued. With SKEW the last step of an item
// and the first of the next are multiplied in two halves of the tokens, so that each half of C is written while
// the tensor cores work on the other. Items have at least two steps. No branch surrounds unfinished
// multiplications: the compiler would serialise them, which the build refuses.
#pragma once
#include "tile_epilogue.cuh"
#include "tile_ring.cuh"
#include "wgmma.cuh"

struct Consumer {
  const TileArgs& args;
  Ring ring;
  u32 released;  // empty barrier of the step that is next to be given back
  u32 staging;
  int warp, lane;
  u32 weights_offset, tokens_offset;

  __device__ __forceinline__ Consumer(const TileArgs& tile_args, u32 base, int thread)
      : args(tile_args), ring(base), released(0), warp(thread / 32), lane(thread % 32) {
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

  __device__ __forceinline__ void release(u32 barrier) const {
    if (threadIdx.x % WARPGROUP == 0) barrier_arrive(barrier);
  }
};

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

// A step of 1 to 4 groups of 16 columns, added to the sums.
template <class... Sums>
__device__ __forceinline__ void multiply_tail(u64 weights, u64 tokens, int k16, Sums&... sums) {
  for (int k = 0; k < k16; ++k) {
    multiply_fence();
    multiply(sums..., weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, 1);
  }
  multiply_commit();
}

constexpr u64 HIGH_TOKENS_OFFSET = LOW_TOKENS / 64 * TOKENS_NEXT_K16 * 4;

using Low = float[LOW_TOKENS / 2];
using High = float[HIGH_TOKENS / 2];

// Steps 1 to the one before the last.
__device__ __forceinline__ void middle_steps(Consumer& me, int steps, Low& low, High& high) {
  for (int step = 1; step < steps - 1; ++step) {
    const u32 barrier = me.ring.empty();
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 1, low, high);
    multiply_wait<1>();
    me.release(me.released);
    me.released = barrier;
    me.ring.advance();
  }
}

#if SKEW

__device__ __forceinline__ void last_step(Consumer& me, int k16, Low& low, High& high) {
  const u32 barrier = me.ring.empty();
  me.wait_full();
  multiply_tail(me.weights(), me.tokens(), k16, low);
  multiply_tail(me.weights(), me.tokens() + HIGH_TOKENS_OFFSET, k16, high);
  multiply_wait<1>();
  me.release(me.released);
  me.released = barrier;
  me.ring.advance();
}

__device__ __forceinline__ void consume(const TileArgs& args, u32 base, int thread) {
  Consumer me(args, base, thread);
  Low low;
  High high;
  const ItemRange range = items_of_block(args);
  int4 item = first_item(args);
  Ending ending = prepare_ending(args, range.begin, item, me.warp, me.lane);
  me.wait_full();
  multiply_step(me.weights(), me.tokens(), 0, low);
  multiply_step(me.weights(), me.tokens() + HIGH_TOKENS_OFFSET, 0, high);
  me.released = me.ring.empty();
  me.ring.advance();
  for (int i = range.begin + 1; i < range.end; ++i) {
    const int4 next = load_early(args.items + i);
    middle_steps(me, steps_of(item), low, high);
    last_step(me, last_k16(item), low, high);
    finish<0, LOW_TOKENS>(args, low, ending, me.staging, me.warp, me.lane);
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 0, low);
    multiply_wait<1>();
    me.release(me.released);
    finish<1, HIGH_TOKENS>(args, high, ending, me.staging, me.warp, me.lane);
    multiply_step(me.weights(), me.tokens() + HIGH_TOKENS_OFFSET, 0, high);
    me.released = me.ring.empty();
    me.ring.advance();
    item = next;
    ending = prepare_ending(args, i, item, me.warp, me.lane);
  }
  middle_steps(me, steps_of(item), low, high);
  last_step(me, last_k16(item), low, high);
  finish<0, LOW_TOKENS>(args, low, ending, me.staging, me.warp, me.lane);
  multiply_wait<0>();
  finish<1, HIGH_TOKENS>(args, high, ending, me.staging, me.warp, me.lane);
}

#else

__device__ __forceinline__ void consume(const TileArgs& args, u32 base, int thread) {
  Consumer me(args, base, thread);
  Low low;
  High high;
  const ItemRange range = items_of_block(args);
  int4 item = first_item(args);
  for (int i = range.begin; i < range.end; ++i) {
    const int4 next = i + 1 < range.end ? load_early(args.items + i + 1) : item;
    const Ending ending = prepare_ending(args, i, item, me.warp, me.lane);
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 0, low, high);
    me.released = me.ring.empty();
    me.ring.advance();
    middle_steps(me, steps_of(item), low, high);
    me.wait_full();
    multiply_tail(me.weights(), me.tokens(), last_k16(item), low, high);
    multiply_wait<0>();
    me.release(me.released);
    me.release(me.ring.empty());
    me.ring.advance();
    finish<0, LOW_TOKENS>(args, low, ending, me.staging, me.warp, me.lane);
    finish<1, HIGH_TOKENS>(args, high, ending, me.staging, me.warp, me.lane);
    item = next;
  }
}

#endif
