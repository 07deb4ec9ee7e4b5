// The ring of stages in shared memory, shared by producer and consumers.
//
// Contract: include after the sizes of the form. Barrier `full` of a slot: 128 arrivals of the producer's gathers and
// one with the bytes of the bulk copies, wherever these come from. Barrier `empty`: one arrival per consumer warpgroup of
// the cluster, since every block copies into the slots of all. The k-th visit of a slot waits for parity k mod 2. Columns
// have two places a slot, since they come a visit ahead.
#pragma once
#include "cluster.cuh"
#include "ptx.cuh"

constexpr int PRODUCERS_MEET = 3;  // barriers 1 and 2 are the consumer warpgroups'

struct Ring {
  u32 base;
  int slot = 0;
  u32 parity = 0;

  __device__ __forceinline__ explicit Ring(u32 shared_base) : base(shared_base) {}
  __device__ __forceinline__ u32 weights() const { return base + slot * STAGE_BYTES; }
  __device__ __forceinline__ u32 tokens() const { return weights() + WEIGHT_BYTES; }
  // Columns of this visit of the slot, and of the next one.
  __device__ __forceinline__ u32 columns() const { return base + COLUMNS_AT + (slot + STAGES * parity) * COLUMN_BYTES; }
  __device__ __forceinline__ u32 columns_after() const {
    return base + COLUMNS_AT + (slot + STAGES * (parity ^ 1)) * COLUMN_BYTES;
  }
  __device__ __forceinline__ u32 full() const { return base + BARRIERS_AT + 8 * slot; }
  __device__ __forceinline__ u32 empty() const { return full() + 8 * STAGES; }

  // At most STAGES slots.
  __device__ __forceinline__ void advance(int slots = 1) {
    slot += slots;
    if (slot >= STAGES) {
      slot -= STAGES;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void start_ring(u32 base) {
  for (int slot = 0; slot < STAGES; ++slot) {
    barrier_init(base + BARRIERS_AT + 8 * slot, WARPGROUP + 1);
    barrier_init(base + BARRIERS_AT + 8 * (STAGES + slot), 2 * CLUSTER);
  }
  barrier_init_fence();
}
