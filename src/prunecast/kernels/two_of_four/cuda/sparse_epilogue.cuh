// The end of an item: sums of 64 rows of a warpgroup out of registers into C.
//
// Contract: every warp works alone on its 16 rows, 64 tokens at a time through a staging slot of its own. Rows of C
// are written where the row list says, 16 bytes a lane, 128 contiguous bytes a row.
#pragma once
#include "activation.cuh"
#include "sparse_args.cuh"
#include "sparse_shape.cuh"
#if SPLIT_K
#include "sparse_sums.cuh"
#endif

#ifndef TOKEN_MAJOR  // C is (tokens, M) instead of (M, tokens)
#define TOKEN_MAJOR 0
#endif

constexpr int LANES_PER_ROW = CHUNK_TOKENS / 8;
constexpr int ROWS_AT_ONCE = 32 / LANES_PER_ROW;
constexpr int ROW_LOADS = 16 / ROWS_AT_ONCE;

// What a thread knows about the rows of one group of the item that it is going to finish.
struct Ending {
#if TOKEN_MAJOR
  int first;            // row of C of the warp's first row where the others follow; or ~ the place of its row list
#else
  int rows[ROW_LOADS];  // rows of C that this lane stores
#endif
  float bias[2];        // of the two rows whose sums this lane holds
#if SPLIT_K
  int action;           // WHOLE, PART or OWNER
#endif
};

// Of item `place` of the lists.
__device__ __forceinline__ Ending prepare_ending(const SparseArgs& args, int place, int4 item, int group_row,
                                                 int lane) {
  Ending ending;
#if SPLIT_K
  ending.action = load_early(&args.splits[place].w);
#endif
  const int* rows = args.rows + item.z * BLOCK_M + group_row;
#if TOKEN_MAJOR
  const int row = load_early(rows + lane % 16), first = uniform(row);
  const bool in_line = first >= 0 && first % 8 == 0 && row == first + lane % 16;
  ending.first = __all_sync(0xffffffff, in_line) ? first : ~(item.z * BLOCK_M + group_row);
#else
#pragma unroll
  for (int i = 0; i < ROW_LOADS; ++i) ending.rows[i] = load_early(rows + i * ROWS_AT_ONCE + lane / LANES_PER_ROW);
#endif
#if BIAS
#pragma unroll
  for (int i = 0; i < 2; ++i) ending.bias[i] = load_early(args.bias + max(load_early(rows + i * 8 + lane / 4), 0));
#else
  ending.bias[0] = ending.bias[1] = 0.0f;
#endif
  return ending;
}

#if TOKEN_MAJOR
#include "sparse_token_major.cuh"
#else
// 16 rows x CHUNK_TOKENS tokens from registers to shared memory; 8 rows meet 8 different banks.
__device__ __forceinline__ void stage_chunk(u32 slot, const float* sums, const Ending& ending, int lane) {
  const int row = lane % 16, half = lane / 16;
#pragma unroll
  for (int pair = 0; pair < CHUNK_TOKENS / 16; ++pair) {
    const float* s = sums + 8 * pair;
    const u32 to = slot + row * CHUNK_TOKENS * 2 + ((2 * pair + half) ^ (row % 8)) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(pack(s[0], s[1], ending.bias[0])), "r"(pack(s[2], s[3], ending.bias[1])),
                 "r"(pack(s[4], s[5], ending.bias[0])), "r"(pack(s[6], s[7], ending.bias[1]))
                 : "memory");
  }
}

__device__ __forceinline__ void store_chunk(const SparseArgs& args, u32 slot, const Ending& ending, int token,
                                            int lane) {
  const int chunk = lane % LANES_PER_ROW;
  const bool inside = token + 8 * chunk < args.tokens;
#pragma unroll
  for (int i = 0; i < ROW_LOADS; ++i) {
    const int row = i * ROWS_AT_ONCE + lane / LANES_PER_ROW;
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(slot + row * CHUNK_TOKENS * 2 + (chunk ^ (row % 8)) * 16)
                 : "memory");
    if (inside && ending.rows[i] >= 0) {
      store_16(args.c + ending.rows[i] * args.c_row_bytes + 2ll * (token + 8 * chunk), v);
    }
  }
}
#endif

// All tokens of one group of rows of item `place` of the lists.
__device__ __forceinline__ void finish(const SparseArgs& args, int place, Sums& sums, const Ending& ending, int group,
                                       int token, u32 staging, int lane) {
#if SPLIT_K
  if (ending.action == PART) {
    hand_over(args, sums, load_early(args.splits + place), group);
    return;
  }
  if (ending.action == OWNER) take_over(args, sums, load_early(args.splits + place), group);
#endif
#pragma unroll
  for (int chunk = 0; chunk < BLOCK_N / CHUNK_TOKENS; ++chunk) {
    __syncwarp();
    stage_chunk(staging, sums + chunk * CHUNK_TOKENS / 2, ending, lane);
    __syncwarp();
    store_chunk(args, staging, ending, token + chunk * CHUNK_TOKENS, lane);
  }
}
