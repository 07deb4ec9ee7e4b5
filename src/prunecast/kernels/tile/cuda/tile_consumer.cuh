// The two consumer warpgroups: wait for a stage, multiply, give the stage before it back, send C out.
//
// Contract: include after `Ending` and `Outgoing` of the form. One step is in the tensor pipe while the next is issued.
// After the last step of an item its C is rounded and taken out of the accumulators at once; it is stored, a piece a
// step, while the next item is multiplied. Items have at least two steps. The ring brings an owner of a split tile the
// other parts' sums after its steps. All multiplications have one width: different ones on the same registers are
// serialised by the compiler.
#pragma once
#include "tile_sums.cuh"
#if TOKENS_FIRST
#include "wgmma_tokens.cuh"
#else
#include "wgmma.cuh"
#endif

using Sums = float[PART_SUMS];

struct Consumer {
  const TileArgs& args;
  Ring ring;
  u32 held = 0;  // empty barrier of the slot that is to be given back next; 0 for none
  int warp, lane;
  u32 weights_offset, tokens_offset;
  Outgoing outgoing;

  __device__ __forceinline__ Consumer(const TileArgs& tile_args, const TensorMap& c_map, u32 base, int thread)
      : args(tile_args), ring(base), warp(thread / 32), lane(thread % 32), outgoing(c_map, base, thread) {
    weights_offset = thread / WARPGROUP * GROUP_WEIGHTS_AT;
    tokens_offset = thread / WARPGROUP * GROUP_TOKENS_AT;
  }

  __device__ __forceinline__ u64 weights() const { return weights_descriptor(ring.weights() + weights_offset); }
  __device__ __forceinline__ u64 tokens() const { return tokens_descriptor(ring.tokens() + tokens_offset); }

  __device__ __forceinline__ void wait_full() const {
    barrier_wait(ring.full(), ring.parity);
#if FENCE
    fence_async_proxy();
#endif
  }

  // One thread arrives at this block's barrier, in a cluster another one at the neighbour's.
  __device__ __forceinline__ void release() {
#if CLUSTER == 1
    if (threadIdx.x % WARPGROUP == 0 && held != 0) barrier_arrive(held);
#else
    if (lane == 0 && warp % 4 < CLUSTER && held != 0) barrier_arrive_at(held, warp % 4);
#endif
    held = 0;
  }

  // The slot at hand becomes the one that is given back next.
  __device__ __forceinline__ void hold() {
    held = ring.empty();
    ring.advance();
  }

  __device__ __forceinline__ void send() { outgoing.store(args); }
};

__device__ __forceinline__ void multiply_16(u64 weights, u64 tokens, u32 keep, Sums& sums) {
#if TOKENS_FIRST
  multiply_tokens(sums, tokens, weights, keep);
#else
  multiply(sums, weights, tokens, keep);
#endif
}

// One full step; `keep` 0 starts new sums.
__device__ __forceinline__ void multiply_step(u64 weights, u64 tokens, u32 keep, Sums& sums) {
  multiply_fence();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    multiply_16(weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, k == 0 ? keep : 1, sums);
  }
  multiply_commit();
}

// A step of 1 to 4 groups of 16 columns, added to the sums. The last group shares its block with the commit.
__device__ __forceinline__ void multiply_tail(u64 weights, u64 tokens, int k16, Sums& sums) {
  int k = 0;
#pragma unroll 1
  for (; k < k16 - 1; ++k) {
    multiply_fence();
    multiply_16(weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, 1, sums);
  }
  multiply_fence();
  multiply_16(weights + k * WEIGHTS_NEXT_K16, tokens + k * TOKENS_NEXT_K16, 1, sums);
  multiply_commit();
}

// All steps of an item but the last.
__device__ __forceinline__ void multiply_most(Consumer& me, int4 item, Sums& sums) {
  const int steps = steps_of(item);
  me.wait_full();
  multiply_step(me.weights(), me.tokens(), 0, sums);
  me.send();
  me.hold();
#pragma unroll 1
  for (int step = 1; step < steps - 1; ++step) {
    me.wait_full();
    multiply_step(me.weights(), me.tokens(), 1, sums);
    me.send();
    multiply_wait<1>();
    me.release();
    me.hold();
  }
}

// The last step; the sums are complete afterwards.
__device__ __forceinline__ void multiply_last(Consumer& me, int4 item, Sums& sums) {
  me.wait_full();
  multiply_tail(me.weights(), me.tokens(), last_k16(item), sums);
  me.send();
  multiply_wait<1>();
  me.release();
  me.hold();
  multiply_wait<0>();
  me.release();
}

template <int STAGE>
__device__ __forceinline__ void take_stage(Consumer& me, Sums& sums) {
  barrier_wait(me.ring.full(), me.ring.parity);
  add_stage<STAGE>(sums, me.ring.weights(), me.warp, me.lane);
  warpgroup_sync(1 + me.warp / 4);
  me.hold();
  me.release();
}

// Adds the sums of the other parts in their order, so that a result is the same in every run.
__device__ __forceinline__ void take_over(Consumer& me, Sums& sums, int parts) {
#pragma unroll 1
  for (int part = 0; part < parts; ++part) {
    take_stage<0>(me, sums);
    take_stage<1>(me, sums);
    take_stage<2>(me, sums);
    take_stage<3>(me, sums);
    take_stage<4>(me, sums);
    take_stage<5>(me, sums);
    take_stage<6>(me, sums);
    take_stage<7>(me, sums);
  }
}

__device__ __forceinline__ void consume(const TileArgs& args, const TensorMap& c_map, u32 base, int thread) {
#if FP8  // scales of tokens are what the last launch wrote
  wait_for_last_launch();
#endif
  Consumer me(args, c_map, base, thread);
  Sums sums;
  int4 item = first_item(args);
  const ItemRange held = items_of_block(args);
  const auto end = [&] { return HOLDS_RANGE ? held.end : items_of_block(args).end; };
  for (int i = HOLDS_RANGE ? held.begin : items_of_block(args).begin; i < end(); ++i) {
    const int4 next = i + 1 < end() ? load_item(args.items + i + 1) : item;
    multiply_most(me, item, sums);
    const Ending ending = prepare_ending(args, i, item, me.warp, me.lane);
    multiply_last(me, item, sums);
    if (ending.split.w == OWNER) take_over(me, sums, ending.split.y);
    if (ending.split.w == PART) {
      hand_over(args, sums, ending.split, me.warp, me.lane);
    } else {
      me.outgoing.flush(args);
      me.outgoing.take(sums, ending);
#if BORDER
      me.outgoing.clear(args);
#endif
    }
    item = next;
  }
  me.outgoing.flush(args);
  bulk_stores_read();
}
