// The two consumer warpgroups of the token form: wait for a stage, multiply, give the stage before it back,
// write C.
//
// Contract: one step is in the tensor pipe while the next is issued. The last step of an item is multiplied in two
// halves of the rows: the low half of C is written while the tensor cores work on the high one, the high half
// while they work on the next item. Items have at least two steps.
//
// The compiler serialises multiplications, which the build refuses, when instructions of different widths share
// registers. `change_width` makes them different variables, which it then keeps in the same registers without a
// move; that needs all multiplications finished, while the other warpgroup keeps the tensor cores at work.
#pragma once
#include "tile_tokens_epilogue.cuh"
#include "tile_tokens_ring.cuh"
#include "wgmma_tokens.cuh"

constexpr u64 HIGH_OFFSET = HALF_ROWS * 128 >> 4;

__device__ __forceinline__ void retie(Half& sums) {
#pragma unroll
  for (int i = 0; i < HALF_SUMS; ++i) {
    float same;
    asm volatile("mov.f32 %0, %1;" : "=f"(same) : "f"(sums[i]));
    sums[i] = same;
  }
}

struct Consumer {
  const TileArgs& args;
  const TensorMap& map;
  Ring ring;
  u32 held = 0;  // empty barrier of the slot that is to be given back next; 0 for none
  u32 staging;
  int group, warp, lane;

  __device__ __forceinline__ Consumer(const TileArgs& tile_args, const TensorMap& c_map, u32 base, int thread)
      : args(tile_args), map(c_map), ring(base), group(thread / WARPGROUP), warp(thread / 32 % 4), lane(thread % 32) {
    staging = base + STAGING_AT + group * HALF_BYTES;
  }

  __device__ __forceinline__ u64 weights() const { return weights_descriptor(ring.weights()); }
  __device__ __forceinline__ u64 tokens() const {
    return tokens_descriptor(ring.tokens() + group * TOKEN_BLOCK_BYTES);
  }

  __device__ __forceinline__ void wait_full() const {
    barrier_wait(ring.full(), ring.parity);
#if FENCE
    fence_async_proxy();
#endif
  }

  // Finishes all multiplications, and gives back what they read.
  __device__ __forceinline__ void change_width(Half& low, Half& high) {
    multiply_wait<0>();
    release();
    retie(low);
    retie(high);
  }

  template <int HALF>
  __device__ __forceinline__ void settle_sums(Half& sums, const Ending& ending) const {
    settle<HALF>(args, sums, ending, staging, group, warp, lane);
  }

  template <int HALF>
  __device__ __forceinline__ void store(const Ending& ending) const {
    store_half<HALF>(args, map, staging, ending, warp, lane);
  }

  // One thread arrives at this block's barrier, in a cluster another one at the neighbour's.
  __device__ __forceinline__ void release() {
#if CLUSTER == 1
    if (threadIdx.x % WARPGROUP == 0 && held != 0) barrier_arrive(held);
#else
    if (lane == 0 && warp < CLUSTER && held != 0) barrier_arrive_at(held, warp);
#endif
    held = 0;
  }

  // The slot at hand becomes the one that is given back next.
  __device__ __forceinline__ void hold() {
    held = ring.empty();
    ring.advance();
  }
};

// One full step; `keep` 0 starts new sums.
template <class... Sums>
__device__ __forceinline__ void multiply_step(u64 tokens, u64 weights, u32 keep, Sums&... sums) {
  multiply_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    multiply_tokens(sums..., tokens + k * TOKENS_NEXT_K16, weights + k * WEIGHTS_NEXT_K16, k == 0 ? keep : 1);
  }
  multiply_commit();
}

// A step of 1 to 4 groups of 16 columns, added to the sums. In the loop every group has a fence of its own, and the last
// one shares its block with the commit: otherwise the compiler adds fences itself.
__device__ __forceinline__ void multiply_last_step(u64 tokens, u64 weights, int k16, Half& sums) {
  if (k16 == 4) {
    multiply_step(tokens, weights, 1, sums);
    return;
  }
  int k = 0;
#pragma unroll 1
  for (; k < k16 - 1; ++k) {
    multiply_fence();
    multiply_tokens(sums, tokens + k * TOKENS_NEXT_K16, weights + k * WEIGHTS_NEXT_K16, 1);
  }
  multiply_fence();
  multiply_tokens(sums, tokens + k * TOKENS_NEXT_K16, weights + k * WEIGHTS_NEXT_K16, 1);
  multiply_commit();
}

// Steps 1 to the one before the last.
__device__ __forceinline__ void middle_steps(Consumer& me, int steps, Half& low, Half& high) {
#pragma unroll 1
  for (int step = 1; step < steps - 1; ++step) {
    me.wait_full();
    multiply_step(me.tokens(), me.weights(), 1, low, high);
    multiply_wait<1>();
    me.release();
    me.hold();
  }
}

// All steps but the first; afterwards the low sums are complete and the high ones under way.
__device__ __forceinline__ void multiply_rest(Consumer& me, int4 item, Half& low, Half& high) {
  middle_steps(me, steps_of(item), low, high);
  me.wait_full();
  me.change_width(low, high);
  multiply_last_step(me.tokens(), me.weights(), last_k16(item), low);
  multiply_last_step(me.tokens(), me.weights() + HIGH_OFFSET, last_k16(item), high);
  me.hold();
  multiply_wait<1>();
}

__device__ __forceinline__ void multiply_first(Consumer& me, Half& low, Half& high) {
  me.wait_full();
  multiply_step(me.tokens(), me.weights(), 0, low, high);
  me.hold();
}

__device__ __forceinline__ void consume(const TileArgs& args, const TensorMap& c_map, ItemRange range, u32 base,
                                        int thread) {
  Consumer me(args, c_map, base, thread);
  Half low, high;
  int4 item = first_item(args);
  Ending ending = prepare_ending(args, range.begin, item, me.group, me.warp, me.lane);
  multiply_first(me, low, high);
  for (int i = range.begin + 1; i < range.end; ++i) {
    const int4 next = load_early(args.items + i);
    multiply_rest(me, item, low, high);
    me.settle_sums<0>(low, ending);
    me.store<0>(ending);
    me.change_width(low, high);
    me.settle_sums<1>(high, ending);
    multiply_first(me, low, high);
    me.store<1>(ending);
    item = next;
    ending = prepare_ending(args, i, item, me.group, me.warp, me.lane);
  }
  multiply_rest(me, item, low, high);
  me.settle_sums<0>(low, ending);
  me.store<0>(ending);
  multiply_wait<0>();
  me.settle_sums<1>(high, ending);
  me.store<1>(ending);
  bulk_stores_read();
}
