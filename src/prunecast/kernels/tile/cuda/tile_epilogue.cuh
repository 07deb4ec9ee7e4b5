// The end of an item: C on its way out while the next item is multiplied.
//
// Contract: every warp works alone on its 16 rows, of which a gated unit leaves 8. `Outgoing` takes rounded C out of the accumulators at once,
// a part of it to the staging buffer and the rest to other registers, and stores it chunk by chunk whenever it is
// asked, so that the stores of all SMs do not meet. Rows of C are written where the row list says, 16 bytes a
// lane, at least 64 contiguous bytes a row, or by one instruction of the copy engine where they follow one another.
#pragma once
#include "activation.cuh"
#include "tile_shape.cuh"
#include "tile_args.cuh"

#ifndef TOKEN_MAJOR  // C is (tokens, M) instead of (M, tokens)
#define TOKEN_MAJOR 0
#endif

constexpr int LANES_PER_ROW = CHUNK_TOKENS / 8;
constexpr int ROWS_AT_ONCE = 32 / LANES_PER_ROW;
constexpr int ROW_LOADS = CHUNK_ROWS / ROWS_AT_ONCE;

// What a thread knows about the item it is going to finish.
struct Ending {
  int4 split;
  int token;               // first token of the warpgroup
#if TOKEN_MAJOR
  int rows[2];             // rows of C that are rows `lane` and `lane` + 32 of the warpgroup
#else
  int row;                 // row of C that is row `lane % CHUNK_ROWS` of a chunk of the warp
#endif
  float bias[2];           // of the two rows whose sums this lane holds
#if BORDER
  u32 zeros;               // bit i: tokens 8 i to 8 i + 7 of the warpgroup are zeros
#endif
};

__device__ __forceinline__ Ending prepare_ending(const TileArgs& args, int place, int4 item, int warp, int lane) {
  Ending ending;
  const int group = warp / 4;
  const int* rows = args.rows + item.z * BLOCK_M + (SPLIT_ROWS ? group * 64 : 0) + warp % 4 * 16;
  ending.split = split_of(args, place);
  ending.token = item.w + (SPLIT_ROWS ? 0 : group * PART_TOKENS);
#if TOKEN_MAJOR
#pragma unroll
  for (int i = 0; i < 2; ++i) ending.rows[i] = load_early(rows - warp % 4 * 16 + i * 32 + lane);
#else
  ending.row = gated_row(load_early(rows + gate_of(lane % CHUNK_ROWS)));
#endif
#if BIAS
#pragma unroll
  for (int i = 0; i < 2; ++i) ending.bias[i] = load_early(args.bias + max(load_early(rows + i * 8 + lane / 4), 0));
#else
  ending.bias[0] = ending.bias[1] = 0.0f;
#endif
#if BORDER
  static_assert(!GLU && !TOKEN_MAJOR, "a convolution has rows of tokens");
  ending.zeros = __ballot_sync(0xffffffff, in_border(ending.token + 8 * lane, args.line_chunks, args.pixel_chunks));
#endif
  return ending;
}

// Chunk of 16 bytes at which chunk `chunk` of row `row` is staged, so that 8 rows meet 8 different banks.
__device__ __forceinline__ int staged_chunk(int row, int chunk) {
  return chunk ^ (CHUNK_TOKENS == 64 ? row % 8 : row / 2 % 4);
}

// CHUNK_ROWS rows x CHUNK_TOKENS tokens of rounded C from registers to shared memory.
__device__ __forceinline__ void stage_chunk(u32 slot, const u32* words, int lane) {
  constexpr int BLOCKS = 32 / CHUNK_ROWS;  // of 8 tokens, that one instruction takes
  const int row = lane % CHUNK_ROWS, block = lane / CHUNK_ROWS;
#pragma unroll
  for (int pair = 0; pair < CHUNK_WORDS / 4; ++pair) {
    const u32 to = slot + row * CHUNK_TOKENS * 2 + staged_chunk(row, BLOCKS * pair + block) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(words[4 * pair]), "r"(words[4 * pair + 1]), "r"(words[4 * pair + 2]), "r"(words[4 * pair + 3])
                 : "memory");
  }
}

// Bias, activation and rounding of one chunk of sums; words in the order of stmatrix.
__device__ __forceinline__ void round_chunk(u32 (&words)[CHUNK_WORDS], const float* sums, const Ending& ending) {
#if GLU
  const float gate[2] = {ending.bias[0], ending.bias[0]}, up[2] = {ending.bias[1], ending.bias[1]};
#pragma unroll
  for (int i = 0; i < CHUNK_WORDS; ++i) words[i] = pack_gated(sums + 4 * i, sums + 4 * i + 2, gate, up);
#else
#pragma unroll
  for (int i = 0; i < CHUNK_WORDS; ++i) words[i] = pack(sums[2 * i], sums[2 * i + 1], ending.bias[i % 2]);
#endif
}

#if BORDER
// Zeros in the words of `round_chunk` that are in the border; bit i of `zeros` is that of tokens 8 i to 8 i + 7.
__device__ __forceinline__ void clear_border(u32 (&words)[CHUNK_WORDS], u32 zeros) {
#pragma unroll
  for (int i = 0; i < CHUNK_WORDS; ++i) words[i] = zeros >> i / 2 & 1 ? 0 : words[i];
}
#endif

#if TOKEN_MAJOR
#include "tile_token_major.cuh"
#else

struct Outgoing {
  const TensorMap& map;
  u32 staging;             // of the warp
  int lane;
  int left = 0;            // chunks not stored yet
  int token;               // of the next chunk
  int row;                 // as in Ending
  bool together;           // the rows of a chunk follow one another in C
  u32 kept[KEPT_WORDS];    // chunks that found no place in the staging buffer

  __device__ __forceinline__ Outgoing(const TensorMap& c_map, u32 base, int thread)
      : map(c_map), staging(base + STAGING_AT + thread / 32 * WARP_STAGING_BYTES), lane(thread % 32) {}

  // C of a finished item; nothing may be left of the one before.
  __device__ __forceinline__ void take(const float (&sums)[PART_SUMS], const Ending& ending) {
    empty_staging();
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      u32 words[CHUNK_WORDS];
      round_chunk(words, sums + chunk * CHUNK_SUMS, ending);
#if BORDER
      clear_border(words, ending.zeros >> chunk * (CHUNK_TOKENS / 8));
#endif
      if (chunk < CHUNKS_STAGED) {
        stage_chunk(staging + chunk * CHUNK_BYTES, words, lane);
      } else {
#pragma unroll
        for (int i = 0; i < CHUNK_WORDS; ++i) kept[(chunk - CHUNKS_STAGED) * CHUNK_WORDS + i] = words[i];
      }
    }
    fill_staging();
    left = CHUNKS;
    token = ending.token;
    row = ending.row;
    const int first = __shfl_sync(0xffffffff, row, 0);
    together = __all_sync(0xffffffff, first >= 0 && row == first + lane % CHUNK_ROWS);
  }

  // What was staged has been read.
  __device__ __forceinline__ void empty_staging() const {
    bulk_stores_read();
    __syncwarp();
  }

  // What was staged can be read, by the copy engine too.
  __device__ __forceinline__ void fill_staging() const {
    fence_async_proxy();
    __syncwarp();
  }

  // The staging buffer is empty: what was kept comes in.
  __device__ __forceinline__ void restage() {
    empty_staging();
#pragma unroll
    for (int first = 0; first < CHUNKS_KEPT; first += CHUNKS_STAGED) {
      if (left != CHUNKS_KEPT - first) continue;
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS_STAGED; ++chunk) {
        stage_chunk(staging + chunk * CHUNK_BYTES, kept + (first + chunk) * CHUNK_WORDS, lane);
      }
    }
    fill_staging();
  }

#if BORDER
  // This item's part of the zeros after its rows.
  __device__ __forceinline__ void clear(const TileArgs& args) const {
    const int parts = (args.tokens + PART_TOKENS - 1) / PART_TOKENS;
    clear_gaps(args.c, args.c_row_bytes, args.tokens, args.gaps, row, token / PART_TOKENS, parts,
               lane / CHUNK_ROWS, 32 / CHUNK_ROWS);
  }
#endif

  // Stores one chunk, if there is one.
  __device__ __forceinline__ void store(const TileArgs& args) {
    if (left == 0) return;
    if (left != CHUNKS && left % CHUNKS_STAGED == 0) restage();
    const u32 slot = staging + (CHUNKS - left) % CHUNKS_STAGED * CHUNK_BYTES;
    if (together) {
      if (lane == 0) store_box(&map, token, row, slot);
      bulk_stores_commit();
    } else {
      store_rows(args, slot);
    }
    token += CHUNK_TOKENS;
    left -= 1;
  }

  __device__ __forceinline__ void store_rows(const TileArgs& args, u32 slot) const {
    const int chunk = lane % LANES_PER_ROW;
    const bool inside = token + 8 * chunk < args.tokens;
#pragma unroll
    for (int i = 0; i < ROW_LOADS; ++i) {
      const int place = i * ROWS_AT_ONCE + lane / LANES_PER_ROW;
      const int own = __shfl_sync(0xffffffff, row, place);
      uint4 v;
      asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                   : "r"(slot + place * CHUNK_TOKENS * 2 + staged_chunk(place, chunk) * 16)
                   : "memory");
      if (inside && own >= 0) store_16(args.c + own * args.c_row_bytes + 2ll * (token + 8 * chunk), v);
    }
  }

  __device__ __forceinline__ void flush(const TileArgs& args) {
#pragma unroll 1
    while (left > 0) store(args);
  }
};
#endif
