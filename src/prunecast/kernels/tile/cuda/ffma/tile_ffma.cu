// The fp32 tile kernel on CUDA cores: C rows of a tile = packed weights x gathered rows of B, from sm_70 on.
//
// Contract: launch 256 threads and SHARED_BYTES of dynamic shared memory per block, as many blocks as the records
// have. Records, workspace and owners of split tiles are those of `mma_args.cuh`; B and C have rows of `tokens`
// elements, a multiple of 4, aligned to 16 bytes. With ASYNC copies use cp.async (sm_80 and later), STAGES - 1 steps
// ahead, otherwise they go through registers.
//
// Defines: BLOCK_M, BLOCK_N, LANE_M, LANE_N, STAGES, ASYNC (ffma_shape.cuh); BIAS, ACTIVATION (activation.cuh); GUARD
// (ptx.cuh); MOST_REGISTERS per thread; PLAN_THREADS, PLAN_SHARED_BYTES: values of the plan that are checked.
#include "ffma_shape.cuh"
#include "activation.cuh"
#if ASYNC
#include "../mma/mma_fetch.cuh"
#else
#include "ffma_fetch_registers.cuh"
#endif

using Sums = float[LANE_M][LANE_N];

// Position of a lane in the tile of C: its pieces are LANES_M * 4 rows and LANES_N * 4 tokens apart. Lanes 2i and 2i +
// 1 have the same tokens, lanes 4i + j and 4i + j + 2 the same rows, so that the two quarter-warps of a half warp share
// one pass of the shared-memory port.
struct Place {
  int warp, lane, row, token;

  __device__ __forceinline__ Place() : warp(uniform(threadIdx.x / 32)), lane(threadIdx.x % 32) {
    row = warp / WARPS_N * PART_M + (lane % 2 + lane / 16 * 2) * 4;
    token = warp % WARPS_N * PART_N + lane / 2 % LANES_N * 4;
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

// Columns `from` to `stop` of a stage.
__device__ __forceinline__ void multiply(Sums& sums, u32 stage, int from, int stop, const Place& me) {
  const u32 weights_at = stage + me.row * 4, tokens_at = stage + WEIGHT_BYTES + me.token * 4;
#pragma unroll UNROLLED
  for (int k = from; k < stop; ++k) {
    float weights[LANE_M], tokens[LANE_N];
    read(weights, weights_at + k * WEIGHT_ROW_BYTES, LANES_M * 16);
    read(tokens, tokens_at + k * ROW_BYTES, LANES_N * 16);
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

// Adds the sums of the other k-slices in a fixed order, so that results are bitwise reproducible.
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
      if (q % 4 == 0) __syncwarp();  // prevents the compiler from issuing all loads at once, which would spill
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

#if ASYNC
__device__ __forceinline__ void work(const MmaArgs& args, StepRange range, u32 base) {
  const Place me;
  Fetcher fetcher(args, range, base);
  fetcher.begin();
  Sums sums;
  int slot = 0;
#pragma unroll 1
  for (int i = 0; i < range.count; ++i) {
    if (fetcher.record(i).w & FIRST_STEP) clear(sums);
    wait_step();
    fetcher.issue(i, slot == 0 ? STAGES - 1 : slot - 1);
    multiply(sums, base + slot * STAGE_BYTES, 0, STEP_COLUMNS, me);
    const int4 record = fetcher.record(i);
    if (record.w & LAST_STEP) finish(args, sums, record, me);
    slot = slot + 1 == STAGES ? 0 : slot + 1;
  }
}
#else
__device__ __forceinline__ void work(const MmaArgs& args, StepRange range, u32 base) {
  const Place me;
  Fetcher fetcher(args, range, base);
  Sums sums;
#pragma unroll 1
  for (int i = 0; i < range.count; ++i) {
    const int what = fetcher.what;
    if (what & FIRST_STEP) clear(sums);
    __syncthreads();  // this step is complete in its slot, and all threads have read the other slot
    const int slot = i % 2;
    uint4 weights[WEIGHT_COPIES], tokens[ROW_COPIES];
    const bool more = i + 1 < range.count;
    if (more) fetcher.load_weights(weights);
    if (more) fetcher.ask_columns();
    multiply(sums, base + slot * STAGE_BYTES, 0, STEP_COLUMNS / 2, me);
    fetcher.land_weights(weights, 1 - slot);
    if (more) fetcher.load_tokens(tokens);
    fetcher.advance(i);
    multiply(sums, base + slot * STAGE_BYTES, STEP_COLUMNS / 2, STEP_COLUMNS, me);
    fetcher.land_tokens(tokens, 1 - slot);
    if (what & LAST_STEP) finish(args, sums, load_early(args.steps + range.begin + i), me);
  }
}
#endif

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
