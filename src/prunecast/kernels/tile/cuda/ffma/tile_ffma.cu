// The tile kernel in fp32 on CUDA cores: C rows of a tile = packed weights x gathered rows of B, from sm_70 on.
//
// Contract: launch 256 threads and SHARED_BYTES of dynamic shared memory per block, as many blocks as the records
// have. Eight warps own LANE_M * 4 x LANE_N * 8 of the block's tile of C each, a lane LANE_M x LANE_N of it in pieces
// of four. A stage is 16 kept columns: weights [column][row], then as many rows of BLOCK_N tokens; while one of two is
// multiplied the next waits in registers. Records, workspace and who writes C are those of `mma_args.cuh`; B and C
// have rows of `tokens` elements, a multiple of 4, that begin at multiples of 16 bytes.
//
// Defines: BLOCK_M, BLOCK_N, LANE_M, LANE_N; BIAS, ACTIVATION (activation.cuh); GUARD (ptx.cuh); MOST_REGISTERS of a
// thread; PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "../mma/mma_args.cuh"
#include "activation.cuh"

constexpr int THREADS = 256;
constexpr int WARPS = 8;
constexpr int STEP_COLUMNS = 16;
constexpr int WEIGHT_ROW_BYTES = BLOCK_M * 4;
constexpr int TOKEN_ROW_BYTES = BLOCK_N * 4;
constexpr int WEIGHT_BYTES = STEP_COLUMNS * WEIGHT_ROW_BYTES;
constexpr int STAGE_BYTES = WEIGHT_BYTES + STEP_COLUMNS * TOKEN_ROW_BYTES;
constexpr int SHARED_BYTES = 2 * STAGE_BYTES;
constexpr int LANES_M = 4, LANES_N = 8;  // of a warp
constexpr int PART_M = LANES_M * LANE_M;
constexpr int PART_N = LANES_N * LANE_N;
constexpr int WARPS_N = BLOCK_N / PART_N;
constexpr int PIECES_N = LANE_N / 4;
constexpr int UNROLLED = LANE_M * LANE_N == 64 ? 1 : 8;  // columns: registers for operands of more are not there
constexpr int QUADS = LANE_M * PIECES_N;

// Copies of one thread in a stage
constexpr int LANES_PER_ROW = BLOCK_N / 4;
constexpr int ROWS_AT_ONCE = THREADS / LANES_PER_ROW;
constexpr int ROW_COPIES = STEP_COLUMNS / ROWS_AT_ONCE;
constexpr int WEIGHT_CHUNKS = WEIGHT_BYTES / 16;
constexpr int WEIGHT_COPIES = (WEIGHT_CHUNKS + THREADS - 1) / THREADS;

static_assert(BLOCK_M / PART_M * WARPS_N == WARPS && BLOCK_M % PART_M == 0, "eight warps own a part each");
static_assert(ROW_COPIES * ROWS_AT_ONCE == STEP_COLUMNS, "threads fetch whole rounds of rows");
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");

using Sums = float[LANE_M][LANE_N];

struct Place {  // of a lane in the tile of C: its pieces begin LANES_M * 4 rows and LANES_N * 4 tokens apart
  int warp, lane, row, token;

  __device__ __forceinline__ Place() : warp(uniform(threadIdx.x / 32)), lane(threadIdx.x % 32) {
    row = warp / WARPS_N * PART_M + lane / LANES_N * 4;
    token = warp % WARPS_N * PART_N + lane % LANES_N * 4;
  }
};

// What is copied next: column numbers are asked for half a step ahead of the rows of B, the record as long before.
struct Fetcher {
  const MmaArgs& args;
  StepRange range;
  u32 base;
  int what;   // of this step
  int4 next;  // record of the step behind it
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

  // Behind the loads of step i + 1.
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

template <int COUNT>
__device__ __forceinline__ void read(float (&values)[COUNT], u32 from, int apart) {
#pragma unroll
  for (int p = 0; p < COUNT / 4; ++p) {
    const uint4 v = load_shared_16(from + p * apart);
    values[4 * p] = __uint_as_float(v.x), values[4 * p + 1] = __uint_as_float(v.y);
    values[4 * p + 2] = __uint_as_float(v.z), values[4 * p + 3] = __uint_as_float(v.w);
  }
}

// Columns `from` to `from` + 8 of a stage.
__device__ __forceinline__ void multiply(Sums& sums, u32 stage, int from, const Place& me) {
  const u32 weights_at = stage + me.row * 4, tokens_at = stage + WEIGHT_BYTES + me.token * 4;
#pragma unroll UNROLLED
  for (int k = from; k < from + STEP_COLUMNS / 2; ++k) {
    float weights[LANE_M], tokens[LANE_N];
    read(weights, weights_at + k * WEIGHT_ROW_BYTES, LANES_M * 16);
    read(tokens, tokens_at + k * TOKEN_ROW_BYTES, LANES_N * 16);
#pragma unroll
    for (int m = 0; m < LANE_M; ++m) {
#pragma unroll
      for (int n = 0; n < LANE_N; ++n) sums[m][n] = fmaf(weights[m], tokens[n], sums[m][n]);
    }
  }
}

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int i = 0; i < LANE_M * LANE_N; ++i) sums[i / LANE_N][i % LANE_N] = 0.0f;
}

__device__ __forceinline__ void store_rows(const MmaArgs& args, const Sums& sums, int4 record, const Place& me) {
  const int token = record.y + me.token;
#pragma unroll
  for (int m = 0; m < LANE_M; ++m) {
    __syncwarp();  // one row at a time, as above
    const int place = me.row + m / 4 * LANES_M * 4 + m % 4;
    const int row = load_early(args.rows + record.z * BLOCK_M + place);
    const float bias = BIAS ? load_early(args.bias + max(row, 0)) : 0.0f;
    unsigned char* to = args.c + row * args.c_row_bytes + 4ll * token;
#pragma unroll
    for (int p = 0; p < PIECES_N; ++p) {
      u32 word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) word[i] = __float_as_uint(activate(sums[m][4 * p + i] + bias));
      const bool inside = row >= 0 && token + p * LANES_N * 4 < args.tokens;
      if (inside) store_16(to + p * LANES_N * 16, make_uint4(word[0], word[1], word[2], word[3]));
    }
  }
}

__device__ __forceinline__ void hand_over(float4* to, const Sums& sums, u32* counter, int lane) {
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    const float* s = &sums[q / PIECES_N][q % PIECES_N * 4];
    to[q * 32] = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncwarp();
  if (lane == 0) signal_add(counter);
}

// Adds the other parts in their order, so that a result is the same in every run.
__device__ __forceinline__ void take_over(const float4* from, Sums& sums, int parts, u32* counter, int lane) {
  if (lane == 0) {
    Patience patience;
    while (load_acquire(counter) != static_cast<u32>(parts)) patience.spend();
    *counter = 0;
  }
#pragma unroll 1
  for (int part = 0; part < parts; ++part) {
#pragma unroll
    for (int q = 0; q < QUADS; ++q) {
      if (q % 4 == 0) __syncwarp();  // or the compiler asks for all at once and runs out of registers
      const float4 other = load_past_l1(from + q * 32);
      float* s = &sums[q / PIECES_N][q % PIECES_N * 4];
      s[0] += other.x, s[1] += other.y, s[2] += other.z, s[3] += other.w;
    }
    from += WARPS * QUADS * 32;
  }
}

__device__ __forceinline__ void finish(const MmaArgs& args, Sums& sums, int4 record, const Place& me) {
  if (record.w & (PART | OWNER)) {
    const int4 split = load_early(args.splits + (record.w >> PLACE_SHIFT));
    float4* partials = args.partials + (static_cast<i64>(split.x) * WARPS + me.warp) * (QUADS * 32) + me.lane;
    u32* counter = args.counters + split.z * WARPS + me.warp;
    if (record.w & PART) return hand_over(partials, sums, counter, me.lane);
    take_over(partials, sums, split.y, counter, me.lane);
  }
  store_rows(args, sums, record, me);
}

__device__ __forceinline__ void read_clock(u64* clock) {
  clock[0] = clock64();
  clock[1] = global_nanoseconds();
}

__device__ __forceinline__ void work(const MmaArgs& args, StepRange range, u32 base) {
  const Place me;
  Fetcher fetcher(args, range, base);
  Sums sums;
#pragma unroll 1
  for (int i = 0; i < range.count; ++i) {
    const int what = fetcher.what;
    if (what & FIRST_STEP) clear(sums);
    __syncthreads();  // this step lies in its slot, and everyone has read the other one
    // Half a step each, so that registers hold half of what is copied
    const int slot = i % 2;
    uint4 weights[WEIGHT_COPIES], tokens[ROW_COPIES];
    const bool more = i + 1 < range.count;
    if (more) fetcher.load_weights(weights);
    if (more) fetcher.ask_columns();
    multiply(sums, base + slot * STAGE_BYTES, 0, me);
    fetcher.land_weights(weights, 1 - slot);
    if (more) fetcher.load_tokens(tokens);
    fetcher.advance(i);
    multiply(sums, base + slot * STAGE_BYTES, STEP_COLUMNS / 2, me);
    fetcher.land_tokens(tokens, 1 - slot);
    if (what & LAST_STEP) finish(args, sums, load_early(args.steps + range.begin + i), me);
  }
}

extern "C" __global__ void __maxnreg__(MOST_REGISTERS) tile_ffma(const __grid_constant__ MmaArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const StepRange range = steps_of_block(args);
  let_next_launch_start();
  if (range.count == 0) return;
  const bool timed = args.clock != nullptr && blockIdx.x == 0 && threadIdx.x == 0;
  if (timed) read_clock(args.clock);
  work(args, range, shared_address(shared));
  if (timed) read_clock(args.clock + 2);
}
