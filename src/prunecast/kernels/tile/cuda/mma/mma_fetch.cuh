// Copies into the pipeline stages with cp.async: packed weights and gathered rows of B, issued AHEAD steps before they
// are multiplied. They continue across items, so that the first steps of the next item arrive while C is written.
//
// Contract: include after the sizes of a stage, `mma_shape.cuh` or `ffma_shape.cuh`. All threads of the block call
// `begin` once, and `issue` in step i after `wait_step`, which guarantees that the slot of the previous step has been
// read and that all copies issued AHEAD steps ago have arrived. A row of B is copied AHEAD steps before its product,
// its column index AHEAD steps before that, and the record of the step another AHEAD steps earlier, so that no load is
// waited for. Thread t copies chunk t mod LANES_PER_ROW of rows t / LANES_PER_ROW + ROWS_AT_ONCE q. Columns of -1 and
// tokens beyond the row become zeros.
#pragma once
#include "mma_args.cuh"

constexpr int AHEAD = STAGES - 1;
constexpr int COLUMN_CHUNKS = COLUMN_BYTES / 16;
constexpr int ROWS_A_PIECE = ROW_COPIES < 4 ? ROW_COPIES : 4;  // one shared-memory load reads their column indices
constexpr int PIECES = ROW_COPIES / ROWS_A_PIECE + 1;

struct Fetcher {
  const MmaArgs& args;
  StepRange range;
  u32 base;

  __device__ __forceinline__ Fetcher(const MmaArgs& mma_args, StepRange steps, u32 shared)
      : args(mma_args), range(steps), base(shared) {}

  __device__ __forceinline__ void begin() const {
    copy_record(threadIdx.x % STEP_SLOTS, threadIdx.x < 3 * AHEAD);
    meet();
#pragma unroll
    for (int step = 0; step < AHEAD; ++step) copy_columns(step, threadIdx.x);
    meet();
#if PDL
    wait_for_last_launch();
#endif
#pragma unroll 1
    for (int step = 0; step < AHEAD; ++step) {
      copy_step(step, step);
      copy_columns(step + AHEAD, threadIdx.x);
      commit_copies();
      __syncthreads();  // column slots that were read are reused
    }
  }

  // Issues the copies of step i + AHEAD into `slot`, the columns of step i + 2 AHEAD and the record of step i + 3
  // AHEAD.
  __device__ __forceinline__ void issue(int i, int slot) const {
    copy_step(i + AHEAD, slot);
    copy_columns(i + 2 * AHEAD, threadIdx.x);
    copy_record(i + 3 * AHEAD, threadIdx.x == COLUMN_CHUNKS);
    commit_copies();
  }

  // Issues piece `piece` of the same copies, to interleave them with products: a few rows of B each, then the rest.
  __device__ __forceinline__ void issue_piece(int i, int slot, int piece) const {
    const bool more = i + AHEAD < range.count;
    const uint2 place = load_shared_8(record_at(i + AHEAD));
    const u32 to = base + slot * STAGE_BYTES;
    if (piece + 1 < PIECES) {
      const int first_token = static_cast<int>(place.y);
      copy_rows(more, to + WEIGHT_BYTES, columns_at(i + AHEAD), first_token, piece * ROWS_A_PIECE);
      return;
    }
    copy_weights(more, to, static_cast<int>(place.x));
    copy_columns(i + 2 * AHEAD, threadIdx.x);
    copy_record(i + 3 * AHEAD, threadIdx.x == COLUMN_CHUNKS);
    commit_copies();
  }

  __device__ __forceinline__ void land(int) const {}

  // Record of step i; valid during the whole step.
  __device__ __forceinline__ int4 record(int i) const {
    const uint4 v = load_shared_16(record_at(i));
    return make_int4(v.x, v.y, v.z, v.w);
  }

  // First token of step i, read from shared memory again at its end, because one more register would spill at 64 x 256.
  __device__ __forceinline__ int token(int i, int4) const { return load_shared_4(record_at(i) + 4); }

 private:
  __device__ __forceinline__ u32 record_at(int i) const { return base + STEPS_AT + i % STEP_SLOTS * 16; }
  __device__ __forceinline__ u32 columns_at(int i) const { return base + COLUMNS_AT + i % COLUMN_SLOTS * COLUMN_BYTES; }

  __device__ __forceinline__ void meet() const {
    commit_copies();
    wait_copies<0>();
    __syncthreads();
  }

  __device__ __forceinline__ void copy_record(int i, bool mine) const {
    copy_16_if(mine && i < range.count, record_at(i), args.steps + range.begin + i);
  }

  __device__ __forceinline__ void copy_columns(int i, u32 chunk) const {
    const i64 stage = static_cast<int>(load_shared_4(record_at(i)));
    copy_16_if(chunk < COLUMN_CHUNKS && i < range.count, columns_at(i) + chunk * 16,
               args.columns + stage * STEP_COLUMNS + chunk * 4);
  }

  // After the last step nothing is copied, and the record that is read is stale or uninitialised.
  __device__ __forceinline__ void copy_step(int i, int slot) const {
    const uint2 place = load_shared_8(record_at(i));
    const u32 to = base + slot * STAGE_BYTES;
    const bool more = i < range.count;
    copy_tokens(more, to + WEIGHT_BYTES, columns_at(i), static_cast<int>(place.y));
    copy_weights(more, to, static_cast<int>(place.x));
  }

  __device__ __forceinline__ void copy_weights(bool more, u32 to, int stage) const {
    const uint4* from = args.weights + static_cast<i64>(stage) * WEIGHT_CHUNKS + threadIdx.x;
#pragma unroll
    for (int i = 0; i < WEIGHT_COPIES; ++i) {
      const bool mine = (i + 1) * THREADS <= WEIGHT_CHUNKS || threadIdx.x + i * THREADS < WEIGHT_CHUNKS;
      copy_stream_16_if(more && mine, to + (threadIdx.x + i * THREADS) * 16, from + i * THREADS);
    }
  }

  __device__ __forceinline__ void copy_tokens(bool more, u32 to, u32 columns, int first_token) const {
#pragma unroll
    for (int q = 0; q < ROW_COPIES; q += ROWS_A_PIECE) copy_rows(more, to, columns, first_token, q);
  }

  // Copies ROWS_A_PIECE rows of this thread, beginning with its row number `first`.
  __device__ __forceinline__ void copy_rows(bool more, u32 to, u32 columns, int first_token, int first) const {
    const int row = threadIdx.x / LANES_PER_ROW, chunk = threadIdx.x % LANES_PER_ROW;
    const int token = first_token + CHUNK_TOKENS * chunk;
    const bool inside = token < args.tokens;
    const unsigned char* from = args.b + place_in_row(args, token);
    int column[ROWS_A_PIECE];
    read_columns(column, columns + (row * ROW_COPIES + first) * 4);
    to += row * ROW_BYTES + (chunk ^ row % SWIZZLED_ROWS) * 16;
#pragma unroll
    for (int q = 0; q < ROWS_A_PIECE; ++q) {
      const unsigned char* source = from + source_offset(args, column[q]);
      copy_16_of_row_if(more, to + (first + q) * ROWS_AT_ONCE * ROW_BYTES, source,
                        inside ? row_of_source(column[q]) : -1, static_cast<int>(args.b_row_bytes));
    }
  }

  __device__ __forceinline__ static void read_columns(int (&column)[ROWS_A_PIECE], u32 from) {
    if constexpr (ROWS_A_PIECE == 4) {
      const uint4 v = load_shared_16(from);
      column[0] = v.x, column[1] = v.y, column[2] = v.z, column[3] = v.w;
    } else if constexpr (ROWS_A_PIECE == 2) {
      const uint2 v = load_shared_8(from);
      column[0] = v.x, column[1] = v.y;
    } else {
      column[0] = load_shared_4(from);
    }
  }
};

// Waits until the copies issued AHEAD steps ago by all threads have arrived, and the slot to be filled next is free.
__device__ __forceinline__ void wait_step() {
  wait_copies<STAGES - 2>();
  __syncthreads();
}
