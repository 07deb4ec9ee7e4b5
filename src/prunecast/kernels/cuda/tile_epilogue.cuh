// The end of an item: C out of registers, or the partial sums of a split tile out and in.
//
// Contract: every warp works alone on its 16 rows, LOW or HIGH tokens at a time. Parts of a split tile lie in
// the workspace in the order of the registers; one counter per warp and half says how many have arrived, and
// the owner adds them in the order of the parts, so that a result is the same in every run. The owner is part
// 0. Rows of C are written where the row list says, 16 bytes a lane, at least 64 contiguous bytes a row.
#pragma once
#include "activation.cuh"
#include "tile_args.cuh"
#include "tile_shape.cuh"

constexpr int PART_QUADS = PART_TOKENS / 8;  // groups of 4 registers of a thread
constexpr int LANES_PER_ROW = CHUNK_TOKENS / 8;
constexpr int ROWS_AT_ONCE = 32 / LANES_PER_ROW;
constexpr int ROW_LOADS = 16 / ROWS_AT_ONCE;
constexpr int LOADS_AT_ONCE = 8;           // of partial sums, 4 registers each

// What a thread knows about the item it is going to finish.
struct Ending {
  int4 split;
  int token;               // first token of the warpgroup
  int rows[ROW_LOADS];     // rows of C that this lane stores
  float bias[2];           // of the two rows whose sums this lane holds
};

__device__ __forceinline__ Ending prepare_ending(const TileArgs& args, int place, int4 item, int warp, int lane) {
  Ending ending;
  const int group = warp / 4;
  const int* rows = args.rows + item.z * BLOCK_M + (SPLIT_ROWS ? group * 64 : 0) + warp % 4 * 16;
  ending.split = load_early(args.splits + place);
  ending.token = item.w + (SPLIT_ROWS ? 0 : group * PART_TOKENS);
#pragma unroll
  for (int i = 0; i < ROW_LOADS; ++i) ending.rows[i] = load_early(rows + i * ROWS_AT_ONCE + lane / LANES_PER_ROW);
#if BIAS
#pragma unroll
  for (int i = 0; i < 2; ++i) ending.bias[i] = load_early(args.bias + max(load_early(rows + i * 8 + lane / 4), 0));
#else
  ending.bias[0] = ending.bias[1] = 0.0f;
#endif
  return ending;
}

// Chunk of 16 bytes at which chunk `chunk` of row `row` is staged, so that 8 rows meet 8 different banks.
__device__ __forceinline__ int staged_chunk(int row, int chunk) {
  return chunk ^ (CHUNK_TOKENS == 64 ? row % 8 : row / 2 % 4);
}

// 16 rows x CHUNK_TOKENS tokens from registers to shared memory.
__device__ __forceinline__ void stage_chunk(u32 slot, const float* sums, const Ending& ending, int lane) {
  const int row = lane % 16, half = lane / 16;
#pragma unroll
  for (int pair = 0; pair < CHUNK_TOKENS / 16; ++pair) {
    const float* s = sums + 8 * pair;
    const u32 to = slot + row * CHUNK_TOKENS * 2 + staged_chunk(row, 2 * pair + half) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(pack(s[0], s[1], ending.bias[0])), "r"(pack(s[2], s[3], ending.bias[1])),
                 "r"(pack(s[4], s[5], ending.bias[0])), "r"(pack(s[6], s[7], ending.bias[1]))
                 : "memory");
  }
}

__device__ __forceinline__ void store_chunk(const TileArgs& args, u32 slot, const Ending& ending, int token,
                                            int lane) {
  const int chunk = lane % LANES_PER_ROW;
  const bool inside = token + 8 * chunk < args.tokens;
#pragma unroll
  for (int i = 0; i < ROW_LOADS; ++i) {
    const int row = i * ROWS_AT_ONCE + lane / LANES_PER_ROW;
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(slot + row * CHUNK_TOKENS * 2 + staged_chunk(row, chunk) * 16)
                 : "memory");
    if (inside && ending.rows[i] >= 0) {
      store_16(args.c + ending.rows[i] * args.c_row_bytes + 2ll * (token + 8 * chunk), v);
    }
  }
}

template <int TOKENS>
__device__ __forceinline__ void store_rows(const TileArgs& args, const float (&sums)[TOKENS / 2],
                                           const Ending& ending, int token, u32 staging, int lane) {
#pragma unroll
  for (int chunk = 0; chunk < TOKENS / CHUNK_TOKENS; ++chunk) {
    const u32 slot = staging + chunk % CHUNKS_STAGED * CHUNK_BYTES;
    if (CHUNKS_STAGED == 1 || chunk % 2 == 0) __syncwarp();
    stage_chunk(slot, sums + chunk * CHUNK_TOKENS / 2, ending, lane);
    __syncwarp();
    store_chunk(args, slot, ending, token + chunk * CHUNK_TOKENS, lane);
  }
}

template <int QUADS>
__device__ __forceinline__ void hand_over(float4* to, const float (&sums)[4 * QUADS], u32* counter, int lane) {
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    to[q * 32] = make_float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]);
  }
  __syncwarp();
  if (lane == 0) signal_add(counter);
}

// Adds QUADS groups of four sums. All loads are on their way before the first is added: one at a time, each waits
// for the L2 by itself, 32 times per part.
template <int QUADS>
__device__ __forceinline__ void add_quads(float* sums, const float4* from) {
  float4 other[QUADS];
#pragma unroll
  for (int q = 0; q < QUADS; ++q) other[q] = load_past_l1(from + q * 32);
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    sums[4 * q] += other[q].x;
    sums[4 * q + 1] += other[q].y;
    sums[4 * q + 2] += other[q].z;
    sums[4 * q + 3] += other[q].w;
  }
}

// Adds the other parts, LOADS_AT_ONCE at a time: all at once would need more registers than there are.
template <int QUADS>
__device__ __forceinline__ void take_over(const float4* from, float (&sums)[4 * QUADS], int parts, u32* counter,
                                          int lane) {
  constexpr int BATCH = QUADS < LOADS_AT_ONCE ? QUADS : LOADS_AT_ONCE;
  static_assert(QUADS % BATCH == 0);
  if (lane == 0) {
    Patience patience;
    while (load_acquire(counter) != static_cast<u32>(parts)) patience.spend();
    *counter = 0;
  }
#pragma unroll 1
  for (int part = 0; part < parts; ++part) {
#pragma unroll
    for (int q = 0; q < QUADS; q += BATCH) {
      __syncwarp();
      add_quads<BATCH>(sums + 4 * q, from + q * 32);
    }
    from += CONSUMER_WARPS * PART_QUADS * 32;
  }
}

// Finish tokens FIRST to FIRST + TOKENS of the warpgroup's part; HALF counts LOW as 0 and HIGH as 1.
template <int HALF, int TOKENS>
__device__ __forceinline__ void finish(const TileArgs& args, float (&sums)[TOKENS / 2], const Ending& ending,
                                       u32 staging, int warp, int lane) {
  constexpr int QUADS = TOKENS / 8, FIRST = HALF == 0 ? 0 : LOW_TOKENS;
  if (ending.split.w != 0) {
    const i64 slot_warp = static_cast<i64>(ending.split.x) * CONSUMER_WARPS + warp;
    float4* place = args.partials + (slot_warp * PART_QUADS + FIRST / 8) * 32 + lane;
    u32* counter = args.counters + (ending.split.z * 2 + HALF) * CONSUMER_WARPS + warp;
    if (ending.split.w == 1) {
      hand_over<QUADS>(place, sums, counter, lane);
      return;
    }
    take_over<QUADS>(place, sums, ending.split.y, counter, lane);
  }
  store_rows<TOKENS>(args, sums, ending, ending.token + FIRST, staging, lane);
}
