// The way of C to (tokens, M), the features of a token side by side: forms with weights as the 64-row operand.
//
// Contract: `tile_epilogue.cuh` includes it with TOKEN_MAJOR=1; `c_map` is C in boxes of CHUNK_TOKENS tokens x 64
// features, and ends at the last token. The four warps of a warpgroup turn 64 rows x CHUNK_TOKENS tokens together, 128
// bytes a token, which one instruction of the copy engine stores where the rows follow one another; or else each
// element is stored by itself. C has `c_tokens` rows, B may have more.
#pragma once
static_assert(GLU == 0, "gated units are written as (features, tokens)");

constexpr int GROUP_ROWS = 64;
constexpr int GROUP_CHUNK_BYTES = CHUNK_TOKENS * GROUP_ROWS * 2;
constexpr int TOKENS_OF_WARP = CHUNK_TOKENS / 4;  // of a chunk whose rows lie anywhere

struct Outgoing {
  const TensorMap& map;
  u32 staging;             // of the warpgroup: chunks of tokens x 64 rows, 16-byte chunk c of token t at c xor (t mod 8)
  int warp, lane;          // of the warpgroup, of the warp
  int barrier;             // of the warpgroup
  int left = 0;            // chunks not stored yet
  int token;               // of the next chunk
  int rows[2];             // rows of C that are rows `lane` and `lane` + 32 of the warpgroup
  bool together;           // the 64 rows follow one another in C
  u32 kept[KEPT_WORDS];    // chunks that found no place in the staging buffer

  __device__ __forceinline__ Outgoing(const TensorMap& c_map, u32 base, int thread)
      : map(c_map), warp(thread / 32 % 4), lane(thread % 32), barrier(1 + thread / WARPGROUP) {
    staging = base + STAGING_AT + thread / WARPGROUP * 4 * WARP_STAGING_BYTES;
  }

  // C of a finished item; nothing may be left of the one before.
  __device__ __forceinline__ void take(const float (&sums)[PART_SUMS], const Ending& ending) {
    empty_staging();
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      u32 words[CHUNK_WORDS];
      round_chunk(words, sums + chunk * CHUNK_SUMS, ending);
      if (chunk < CHUNKS_STAGED) {
        stage_turned(staging + chunk * GROUP_CHUNK_BYTES, words);
      } else {
#pragma unroll
        for (int i = 0; i < CHUNK_WORDS; ++i) kept[(chunk - CHUNKS_STAGED) * CHUNK_WORDS + i] = words[i];
      }
    }
    fill_staging();
    left = CHUNKS;
    token = ending.token;
#pragma unroll
    for (int i = 0; i < 2; ++i) rows[i] = ending.rows[i];
    const int first = __shfl_sync(0xffffffff, rows[0], 0);
    together = __all_sync(0xffffffff, first >= 0 && rows[0] == first + lane && rows[1] == first + lane + 32);
  }

  // 16 rows of this warp x CHUNK_TOKENS tokens from registers to shared memory: 8 rows of a token are 16 bytes.
  __device__ __forceinline__ void stage_turned(u32 slot, const u32* words) const {
#pragma unroll
    for (int pair = 0; pair < CHUNK_TOKENS / 16; ++pair) {
      const int of = pair * 16 + lane / 16 * 8 + lane % 8;
      const u32 to = slot + of * 128 + ((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16;
      asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                   "r"(words[4 * pair]), "r"(words[4 * pair + 1]), "r"(words[4 * pair + 2]), "r"(words[4 * pair + 3])
                   : "memory");
    }
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

  // The staging buffer is empty: what was kept comes in.
  __device__ __forceinline__ void restage() {
    empty_staging();
#pragma unroll
    for (int first = 0; first < CHUNKS_KEPT; first += CHUNKS_STAGED) {
      if (left != CHUNKS_KEPT - first) continue;
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS_STAGED; ++chunk) {
        stage_turned(staging + chunk * GROUP_CHUNK_BYTES, kept + (first + chunk) * CHUNK_WORDS);
      }
    }
    fill_staging();
  }

  // Stores one chunk, if there is one.
  __device__ __forceinline__ void store(const TileArgs& args) {
    if (left == 0) return;
    if (left != CHUNKS && left % CHUNKS_STAGED == 0) restage();
    const u32 slot = staging + (CHUNKS - left) % CHUNKS_STAGED * GROUP_CHUNK_BYTES;
    if (together) {
      if (warp == 0 && lane == 0 && token < args.c_tokens) {
#if RESIDUAL
        add_box(&map, rows[0], token, slot);
#else
        store_box(&map, rows[0], token, slot);
#endif
      }
      bulk_stores_commit();
    } else {
      store_elements(args, slot);
    }
    token += CHUNK_TOKENS;
    left -= 1;
  }

  // Rows that lie anywhere: this warp's tokens of the chunk, a row after the other.
  __device__ __forceinline__ void store_elements(const TileArgs& args, u32 slot) const {
    const int own = warp * TOKENS_OF_WARP + lane % TOKENS_OF_WARP;
    const bool inside = token + own < args.c_tokens && lane < TOKENS_OF_WARP;
    unsigned char* c = args.c + (token + own) * args.c_row_bytes;
#pragma unroll 1
    for (int place = 0; place < GROUP_ROWS; ++place) {
      const int row = __shfl_sync(0xffffffff, place < 32 ? rows[0] : rows[1], place % 32);
      const u32 at = slot + own * 128 + ((place / 8) ^ (own % 8)) * 16 + place % 8 * 2;
      if (inside && row >= 0) store_element(c + 2ll * row, load_shared_2(at));
    }
  }

  __device__ __forceinline__ void flush(const TileArgs& args) {
#pragma unroll 1
    while (left > 0) store(args);
  }
};
