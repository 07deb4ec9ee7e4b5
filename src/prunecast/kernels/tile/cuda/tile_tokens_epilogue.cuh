// The end of an item of the token form: C on its way out while the next item is multiplied.
//
// Contract: the sums of a thread are those of two tokens, 8 apart, and of every row of the tile. `Outgoing` takes
// rounded C out of the accumulators at once, one half of the rows to the staging buffer and the other one to other
// registers, and stores a half when it is asked; the second one some steps after the first, when that has been read.
// The four warps of a warpgroup turn 128 rows x 64 tokens together, then each stores 32 of the rows: with one
// instruction of the copy engine where they follow one another in C, or else 128 contiguous bytes each, where the row
// list says.
#pragma once
#include "activation.cuh"
#include "tile_tokens_shape.cuh"
#include "tile_args.cuh"

#ifndef TOKEN_MAJOR  // C is (tokens, M) instead of (M, tokens)
#define TOKEN_MAJOR 0
#endif

constexpr int ROWS_AT_ONCE = 4;          // that a lane takes out of the staging buffer, 4 registers each

// Steps after a store in which the copy engine reads undisturbed: 1 % of items of 16 steps, but C of short ones must not
// wait, which costs 3 %.
constexpr int STEPS_BETWEEN = 2;
constexpr int LONG_ITEM = 6;

#if GLU
constexpr int SUM_ROWS = 32;  // of which 16 rows of C are made
#else
constexpr int SUM_ROWS = 16;
#endif

// What a thread knows about the item it is going to finish.
struct Ending {
  int4 split;
#if TOKEN_MAJOR
  int token;            // first of the 16 of this warp
  int first[HALVES];    // row of C with which the rows of a half begin, or -1 if they do not follow one another
  const int* rows;      // of the tile
#else
  int token;            // of the 8 tokens that this lane stores
  int rows[HALVES];     // row of C of place `lane` among those of a half that this warp stores
#endif
  int between;          // steps from one half to the other
#if BORDER
  bool zeros[2];        // whether the first and the last 8 of the 16 tokens of this warp are zeros
#endif
#if BIAS
  float bias[BLOCK_M / 32];  // of rows lane, lane + 32, ...
#endif
#if FP8
  float row_scales[BLOCK_M / 32];  // as the bias
  float token_scales[2];           // of the two tokens
#endif
};

__device__ __forceinline__ Ending prepare_ending(const TileArgs& args, int place, int4 item, int warp, int lane) {
  Ending ending;
  const int* rows = args.rows + item.z * BLOCK_M;
  ending.split = split_of(args, place);
#if TOKEN_MAJOR
  ending.token = item.w + warp * 16;
  ending.rows = rows;
  ending.between = steps_of(item) >= LONG_ITEM ? STEPS_BETWEEN : 0;
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    const int first = gated_row(load_early(rows + half * HALF_ROWS));
    bool together = first >= 0;
#pragma unroll
    for (int i = 0; i < HALF_ROWS / 32; ++i) {
      const int row = gated_row(load_early(rows + half * HALF_ROWS + gate_of(i * 32 + lane)));
      together &= row == first + i * 32 + lane;
    }
    ending.first[half] = __all_sync(0xffffffff, together) ? first : -1;
  }
#else
  ending.token = item.w + warp / 4 * 64 + lane % 8 * 8;
  ending.between = steps_of(item) >= LONG_ITEM ? STEPS_BETWEEN : 0;
#pragma unroll
  for (int half = 0; half < HALVES; ++half) {
    ending.rows[half] = gated_row(load_early(rows + half * HALF_ROWS + warp % 4 * SUM_ROWS * 2 + gate_of(lane)));
  }
#endif
#if BIAS
#pragma unroll
  for (int i = 0; i < BLOCK_M / 32; ++i) {
    ending.bias[i] = load_early(args.bias + max(load_early(rows + i * 32 + lane), 0));
  }
#endif
#if FP8
  static_assert(TOKEN_MAJOR, "C of fp8 operands is (tokens, M), as B is (tokens, K)");
#pragma unroll
  for (int i = 0; i < BLOCK_M / 32; ++i) {
    ending.row_scales[i] = load_early(args.row_scales + max(load_early(rows + i * 32 + lane), 0));
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ending.token_scales[i] = load_early(args.token_scales + min(ending.token + lane / 4 + 8 * i, args.c_tokens - 1));
  }
#endif
#if BORDER
  static_assert(!GLU && !TOKEN_MAJOR, "a convolution has rows of tokens");
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    ending.zeros[i] = in_border(item.w + warp * 16 + 8 * i, args.line_chunks, args.pixel_chunks);
  }
#endif
  return ending;
}

// Bias of row `row` + 2 (lane mod 4) + `odd`, for a row known at compile time.
__device__ __forceinline__ float bias_of(const Ending& ending, int row, int odd, int lane) {
#if BIAS
  return __shfl_sync(0xffffffff, ending.bias[row / 32], row % 32 + lane % 4 * 2 + odd);
#else
  return 0.0f;
#endif
}

// Scale of a sum of row `row` + 2 (lane mod 4) + `odd` and of token `half` of the thread's two.
__device__ __forceinline__ float scaled(float sum, const Ending& ending, int row, int odd, int half, int lane) {
#if FP8
  return sum * ending.token_scales[half] *
         __shfl_sync(0xffffffff, ending.row_scales[row / 32], row % 32 + lane % 4 * 2 + odd);
#else
  return sum;
#endif
}

// Scales, bias, activation and rounding of the sums of SUM_ROWS rows; words in the order of stmatrix.
__device__ __forceinline__ void round_rows(u32 (&words)[4], const float* sums, const Ending& ending, int row, int lane) {
#if GLU
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int of = row + i / 2 * 16;
    const float* gate = sums + i / 2 * 8 + i % 2 * 2;
    const float* up = gate + 4;
#if FP8
    const float scaled_gate[2] = {scaled(gate[0], ending, of, 0, i % 2, lane), scaled(gate[1], ending, of, 1, i % 2, lane)};
    const float scaled_up[2] = {scaled(up[0], ending, of + 8, 0, i % 2, lane), scaled(up[1], ending, of + 8, 1, i % 2, lane)};
    gate = scaled_gate, up = scaled_up;
#endif
    const float gate_bias[2] = {bias_of(ending, of, 0, lane), bias_of(ending, of, 1, lane)};
    const float up_bias[2] = {bias_of(ending, of + 8, 0, lane), bias_of(ending, of + 8, 1, lane)};
    words[i] = pack_gated(gate, up, gate_bias, up_bias);
  }
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int of = row + i / 2 * 8;
    words[i] = pack(scaled(sums[2 * i], ending, of, 0, i % 2, lane), scaled(sums[2 * i + 1], ending, of, 1, i % 2, lane),
                    bias_of(ending, of, 0, lane), bias_of(ending, of, 1, lane));
#if BORDER
    if (ending.zeros[i % 2]) words[i] = 0;
#endif
  }
#endif
}

#if TOKEN_MAJOR
#include "tile_tokens_token_major.cuh"
#else

struct Outgoing {
  const TensorMap& map;
  u32 staging;             // of the warpgroup: 128 rows x 64 tokens, 16-byte chunk c of row r at c xor (r mod 8)
  int warp, lane;          // of the warpgroup, of the warp
  int barrier;             // of the warpgroup
  int left = 0;            // halves not stored yet
  int pause = 0;           // steps in which nothing is stored
  int between;             // as in Ending
  int token;               // as in Ending
  int row, next_row;       // as in Ending, of the next half and of the one after it
  u32 kept[KEPT_WORDS];    // the second half

  __device__ __forceinline__ Outgoing(const TensorMap& c_map, u32 base, int thread)
      : map(c_map), warp(thread / 32 % 4), lane(thread % 32), barrier(1 + thread / WARPGROUP) {
    staging = base + STAGING_AT + thread / WARPGROUP * HALF_BYTES;
  }

  // C of a finished item; nothing may be left of the one before.
  __device__ __forceinline__ void take(const float (&sums)[PART_SUMS], const Ending& ending) {
    empty_staging();
#pragma unroll
    for (int row16 = 0; row16 < HALVES * HALF_ROWS; row16 += 16) {
      u32 words[4];
      const int from = row16 / 16 * SUM_ROWS;
      round_rows(words, sums + from / 2, ending, from, lane);
      if (row16 < HALF_ROWS) {
        stage_rows(row16, words);
      } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) kept[(row16 - HALF_ROWS) / 4 + i] = words[i];
      }
    }
    fill_staging();
    left = HALVES;
    pause = 0;
    between = ending.between;
    token = ending.token;
    row = ending.rows[0];
    next_row = ending.rows[HALVES - 1];
  }

  // 16 rows x this warp's 16 tokens of rounded C from registers to shared memory.
  __device__ __forceinline__ void stage_rows(int first, const u32* words) const {
    const u32 to = staging + (lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + first * 128),
                 "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
  }

  // What was staged has been read, by all warps.
  __device__ __forceinline__ void empty_staging() const {
    bulk_stores_read();
    warpgroup_sync(barrier);
  }

  // What was staged can be read, by the copy engine too.
  __device__ __forceinline__ void fill_staging() const {
    fence_async_proxy();
    warpgroup_sync(barrier);
  }

  __device__ __forceinline__ void restage() const {
    empty_staging();
#pragma unroll
    for (int first = 0; first < HALF_ROWS; first += 16) stage_rows(first, kept + first / 4);
    fill_staging();
  }

#if BORDER
  // This item's part of the zeros after its rows.
  __device__ __forceinline__ void clear(const TileArgs& args) const {
#pragma unroll
    for (int half = 0; half < HALVES; ++half) {
      clear_gaps(args.c, args.c_row_bytes, args.tokens, args.gaps, half == 0 ? row : next_row, token / 64,
                 (args.tokens + 63) / 64, 0, 1);
    }
  }
#endif

  // Stores one half, if there is one and it is time.
  __device__ __forceinline__ void store(const TileArgs& args) {
    if (left == 0) return;
    if (pause > 0) {
      pause -= 1;
      return;
    }
    if (HALVES == 2 && left == 1) restage();
    const int first = __shfl_sync(0xffffffff, row, 0);
    if (__all_sync(0xffffffff, first >= 0 && row == first + lane)) {
      if (lane == 0 && token < args.tokens) store_box(&map, token, first, staging + warp * 4096);
      bulk_stores_commit();
    } else {
      store_rows(args);
    }
    row = next_row;
    pause = between;
    left -= 1;
  }

  // The rows of this warp wherever they lie in C. Loads and stores go in groups without branches: one after the other,
  // each pair waits for shared memory by itself.
  __device__ __forceinline__ void store_rows(const TileArgs& args) const {
    const bool inside = token < args.tokens;
    unsigned char* c = args.c + 2ll * token;
    const u32 from = staging + (warp * 32 + lane / 8) * 128;
#pragma unroll
    for (int first = 0; first < 32; first += 4 * ROWS_AT_ONCE) {
      int to[ROWS_AT_ONCE];
      uint4 v[ROWS_AT_ONCE];
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        to[i] = __shfl_sync(0xffffffff, row, first + 4 * i + lane / 8);
        v[i] = load_shared_16(from + (first + 4 * i) * 128 + ((lane % 8) ^ ((4 * i + lane / 8) % 8)) * 16);
      }
#pragma unroll
      for (int i = 0; i < ROWS_AT_ONCE; ++i) {
        store_16_of_row(c, to[i], static_cast<int>(args.c_row_bytes), v[i], inside);
      }
    }
  }

  __device__ __forceinline__ void flush(const TileArgs& args) {
#pragma unroll 1
    while (left > 0) {
      pause = 0;
      store(args);
    }
  }
};
#endif
