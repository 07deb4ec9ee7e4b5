// Copies of the next step through registers, without cp.async (before sm_80): weights during one half of a step, tokens
// during the other half, so that registers hold only half of the copied data.
//
// Contract: in step i all threads load weights, request column indices, multiply half of the step, store the weights,
// load tokens, advance, multiply the other half and store the tokens. The other slot is free after the last barrier.
#pragma once
#include "../mma/mma_args.cuh"
#include "ffma_shape.cuh"

// State of the next copies: column indices are requested half a step before the rows of B, and the record half a
// step before them.
struct Fetcher {
  const MmaArgs& args;
  StepRange range;
  u32 base;
  int what;   // flags of this step
  int4 next;  // record of the next step
  int column[ROW_COPIES];

  __device__ __forceinline__ Fetcher(const MmaArgs& mma_args, StepRange steps, u32 shared)
      : args(mma_args), range(steps), base(shared) {
    next = ask_record(0);
    ask_columns();
    wait_for_last_launch();
    uint4 weights[WEIGHT_COPIES], tokens[ROW_COPIES];
    load_weights(weights);
    load_tokens(tokens);
    land_weights(weights, 0);
    land_tokens(tokens, 0);
    advance(-1);
  }

  __device__ __forceinline__ void load_weights(uint4 (&weights)[WEIGHT_COPIES]) const {
    const uint4* from = args.weights + static_cast<i64>(next.x) * WEIGHT_CHUNKS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; ++i) {
      if (threadIdx.x + i * THREADS < WEIGHT_CHUNKS) weights[i] = load_early_16(from + i * THREADS);
    }
  }

  __device__ __forceinline__ void load_tokens(uint4 (&tokens)[ROW_COPIES]) const {
    const int token = next.y + 4 * (threadIdx.x % LANES_PER_ROW);
    const bool inside = token < args.tokens;
    const unsigned char* first = args.b + 4ll * (inside ? token : 0);
#pragma unroll
    for (int q = 0; q < ROW_COPIES; ++q) {
      tokens[q] = make_uint4(0, 0, 0, 0);
      if (inside && column[q] >= 0) tokens[q] = load_early_16(first + column[q] * args.b_row_bytes);
    }
  }

  __device__ __forceinline__ void land_weights(const uint4 (&weights)[WEIGHT_COPIES], int slot) const {
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; ++i) {
      const int place = threadIdx.x + i * THREADS;
      if (place < WEIGHT_CHUNKS) store_shared_16(base + slot * STAGE_BYTES + place * 16, weights[i]);
    }
  }

  __device__ __forceinline__ void land_tokens(const uint4 (&tokens)[ROW_COPIES], int slot) const {
    const u32 rows = base + slot * STAGE_BYTES + WEIGHT_BYTES;
#pragma unroll
    for (int q = 0; q < ROW_COPIES; ++q) store_shared_16(rows + (threadIdx.x + q * THREADS) * 16, tokens[q]);
  }

  // Called after the loads of step i + 1.
  __device__ __forceinline__ void advance(int i) {
    what = next.w;
    next = ask_record(i + 2);
  }

  __device__ __forceinline__ void ask_columns() {
    const int row = threadIdx.x / LANES_PER_ROW;
    const int* from = args.columns + static_cast<i64>(next.x) * STEP_COLUMNS + row * ROW_COPIES;
#pragma unroll
    for (int q = 0; q < ROW_COPIES; ++q) column[q] = load_early(from + q);
  }

 private:
  __device__ __forceinline__ int4 ask_record(int i) const {
    return load_early(args.steps + range.begin + min(i, range.count - 1));
  }
};
