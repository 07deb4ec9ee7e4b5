// The way of C to (tokens, M), the features of a token side by side: the form with tokens as the 64-row operand.
//
// Contract: `tile_tokens_epilogue.cuh` includes it with TOKEN_MAJOR=1; `c_map` is C in boxes of 16 tokens x 64 features,
// and ends at the last token. A warp works alone: it has 16 tokens with all their rows, and stages and stores a half of
// the rows at a time, in boxes where they follow one another in C, or else element by element.
#pragma once
constexpr int WARP_TOKENS = 16;
constexpr int BOX_ROWS = 64;
constexpr int BOX_BYTES = WARP_TOKENS * BOX_ROWS * 2;
constexpr int BOXES = HALF_ROWS / BOX_ROWS;

struct Outgoing {
  const TensorMap& map;
  u32 staging;             // of the warp: boxes of 16 tokens x 64 rows, 16-byte chunk c of token t at c xor (t mod 8)
  int lane;
  int left = 0;            // halves not stored yet
  int pause = 0;           // steps in which nothing is stored
  int between;             // as in Ending
  int token;               // as in Ending
  int first, next_first;   // as in Ending, of the next half and of the one after it
  const int* rows;         // as in Ending, of the next half
  u32 kept[KEPT_WORDS];    // the second half

  __device__ __forceinline__ Outgoing(const TensorMap& c_map, u32 base, int thread)
      : map(c_map), staging(base + STAGING_AT + thread / 32 * BOXES * BOX_BYTES), lane(thread % 32) {}

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
    rows = ending.rows;
    first = ending.first[0];
    next_first = ending.first[HALVES - 1];
  }

  // 16 rows of this warp's 16 tokens from registers to shared memory: 8 rows of a token are 16 bytes.
  __device__ __forceinline__ void stage_rows(int row, const u32* words) const {
    const u32 box = staging + row / BOX_ROWS * BOX_BYTES;
    const u32 to = box + (lane % 16) * 128 + ((row % BOX_ROWS / 8 + lane / 16) ^ (lane % 8)) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(words[0]),
                 "r"(words[1]), "r"(words[2]), "r"(words[3])
                 : "memory");
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

  __device__ __forceinline__ void restage() const {
    empty_staging();
#pragma unroll
    for (int row = 0; row < HALF_ROWS; row += 16) stage_rows(row, kept + row / 4);
    fill_staging();
  }

  // Stores one half, if there is one and it is time.
  __device__ __forceinline__ void store(const TileArgs& args) {
    if (left == 0) return;
    if (pause > 0) {
      pause -= 1;
      return;
    }
    if (HALVES == 2 && left == 1) restage();
    if (first >= 0) {
      if (lane < BOXES && token < args.c_tokens) {
#if RESIDUAL
        add_box(&map, first + lane * BOX_ROWS, token, staging + lane * BOX_BYTES);
#else
        store_box(&map, first + lane * BOX_ROWS, token, staging + lane * BOX_BYTES);
#endif
      }
      bulk_stores_commit();
    } else {
      store_elements(args);
    }
    first = next_first;
    rows += HALF_ROWS;
    pause = between;
    left -= 1;
  }

  // Rows that lie anywhere, one after the other.
  __device__ __forceinline__ void store_elements(const TileArgs& args) const {
    const int own = lane % WARP_TOKENS;
    unsigned char* c = args.c + (token + own) * args.c_row_bytes;
    const bool inside = token + own < args.c_tokens && lane < WARP_TOKENS;
#pragma unroll 1
    for (int place = 0; place < HALF_ROWS; ++place) {
      const int row = gated_row(load_early(rows + gate_of(place)));
      const u32 box = staging + place / BOX_ROWS * BOX_BYTES + own * 128;
      const u32 at = box + ((place % BOX_ROWS / 8) ^ (own % 8)) * 16 + place % 8 * 2;
      if (inside && row >= 0) store_element(c + 2ll * row, load_shared_2(at));
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
