// Copies without cp.async (sm_75): the 16-byte chunks of the next step stay in registers while this step is multiplied.
//
// Contract: all threads call `begin` once. In step i they call `issue`, which loads into registers, and after the
// products `land`, which stores to the other slot. Threads copy the same chunks as in `mma_fetch.cuh`. Column indices
// are loaded one step before the rows, and records one step before the column indices.
#pragma once
#include "mma_args.cuh"
#include "mma_fragments.cuh"

constexpr int AHEAD = 1;

struct Fetcher {
  const MmaArgs& args;
  StepRange range;
  u32 base;
  int4 now, next, after_next;  // records of this step and of the next two
  int column[ROW_COPIES];      // of the next step
  uint4 weights[WEIGHT_COPIES], tokens[ROW_COPIES];

  __device__ __forceinline__ Fetcher(const MmaArgs& mma_args, StepRange steps, u32 shared)
      : args(mma_args), range(steps), base(shared) {
    next = ask_record(0);
    after_next = ask_record(1);
    ask_columns();
  }

  __device__ __forceinline__ void begin() {
#if PDL
    wait_for_last_launch();
#endif
    issue(-1, 0);
    land(0);
  }

  __device__ __forceinline__ void issue(int i, int) {
    if (i + 1 < range.count) load_step();
    now = next;
    next = after_next;
    if (i + 2 < range.count) ask_columns();
    after_next = ask_record(i + 3);
  }

  __device__ __forceinline__ void land(int slot) const {
    const int row = threadIdx.x / LANES_PER_ROW, chunk = threadIdx.x % LANES_PER_ROW;
    const u32 stage = base + slot * STAGE_BYTES;
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; ++i) {
      const int place = threadIdx.x + i * THREADS;
      if (place < WEIGHT_CHUNKS) store_shared_16(stage + place * 16, weights[i]);
    }
    const u32 to = stage + WEIGHT_BYTES + row * ROW_BYTES + (chunk ^ row % 8) * 16;
#pragma unroll
    for (int q = 0; q < ROW_COPIES; ++q) store_shared_16(to + q * ROWS_AT_ONCE * ROW_BYTES, tokens[q]);
  }

  // Record of step i; valid before `issue` of that step.
  __device__ __forceinline__ int4 record(int) const { return now; }
  __device__ __forceinline__ int token(int, int4 record) const { return record.y; }

 private:
  __device__ __forceinline__ int4 ask_record(int i) const {
    return load_early(args.steps + range.begin + min(i, range.count - 1));
  }

  __device__ __forceinline__ void ask_columns() {
    const int row = threadIdx.x / LANES_PER_ROW;
    const int* from = args.columns + static_cast<i64>(next.x) * STEP_COLUMNS + row * ROW_COPIES;
#pragma unroll
    for (int q = 0; q < ROW_COPIES; ++q) column[q] = load_early(from + q);
  }

  __device__ __forceinline__ void load_step() {
    const uint4* from = args.weights + static_cast<i64>(next.x) * WEIGHT_CHUNKS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; ++i) {
      if (threadIdx.x + i * THREADS < WEIGHT_CHUNKS) weights[i] = load_early_16(from + i * THREADS);
    }
    const int token = next.y + 8 * (threadIdx.x % LANES_PER_ROW);
    const bool inside = token < args.tokens;
    const unsigned char* first = args.b + place_in_row(args, inside ? token : 0);
#pragma unroll
    for (int q = 0; q < ROW_COPIES; ++q) {
      tokens[q] = make_uint4(0, 0, 0, 0);
      if (!inside || column[q] < 0) continue;
      tokens[q] = load_early_16(first + source_offset(args, column[q]) + row_of_source(column[q]) * args.b_row_bytes);
    }
  }
};

// Waits until all threads have stored this step and have read the slot to be filled next.
__device__ __forceinline__ void wait_step() { __syncthreads(); }
