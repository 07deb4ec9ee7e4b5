// The ring of stages in shared memory, shared by producer and consumers.
//
// Barrier `full` of a slot: 128 arrivals of the producer's gathers and one with the bytes of the weights.
// Barrier `empty`: one arrival per consumer warpgroup. The k-th visit of a slot waits for parity k mod 2.
#pragma once
#include "ptx.cuh"
#include "sparse_shape.cuh"

struct Ring {
  u32 base;
  int slot = 0;
  u32 parity = 0;

  __device__ __forceinline__ explicit Ring(u32 shared_base) : base(shared_base) {}
  __device__ __forceinline__ u32 tokens() const { return base + slot * STAGE_BYTES; }
  __device__ __forceinline__ u32 weights() const { return tokens() + TOKEN_BYTES; }
  __device__ __forceinline__ u32 places() const { return weights() + VALUE_BYTES; }
  __device__ __forceinline__ u32 full() const { return base + BARRIERS_AT + 8 * slot; }
  __device__ __forceinline__ u32 empty() const { return full() + 8 * STAGES; }

  __device__ __forceinline__ void advance() {
    slot += 1;
    if (slot == STAGES) {
      slot = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void start_ring(u32 base) {
  for (int slot = 0; slot < STAGES; ++slot) {
    barrier_init(base + BARRIERS_AT + 8 * slot, WARPGROUP + 1);
    barrier_init(base + BARRIERS_AT + 8 * (STAGES + slot), 2);
  }
  barrier_init_fence();
}
