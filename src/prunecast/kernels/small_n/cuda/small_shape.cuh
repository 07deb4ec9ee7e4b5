// Sizes of one form of the small-n kernel, and how shared memory is laid out.
//
// A k16 is 16 kept columns of a tile. Of a k16, lane 4 g + q of a warp holds columns 4 q to 4 q + 3, of weights for
// rows g and g + 8 of every 16, of B for tokens TOKENS g to TOKENS g + TOKENS - 1: what it copies is what it reads,
// so that nobody waits for anybody.
#pragma once

#ifndef BLOCK_M  // 16, 32, 64
#error "BLOCK_M is the height of a tile"
#endif
#ifndef BLOCK_N  // 8, 16, 32, 64
#error "BLOCK_N is the number of tokens of a block"
#endif
#ifndef WARPS  // that share the k16s of a tile
#define WARPS 8
#endif
#ifndef DEPTH  // k16s of a warp on their way
#define DEPTH 4
#endif
#ifndef UNIT  // bytes to which rows of B and C are aligned: 2, 4, 8 or 16
#define UNIT 16
#endif
#ifndef BLOCKS_PER_SM  // whose registers fit
#define BLOCKS_PER_SM 1
#endif
#ifndef PDL
#define PDL 1
#endif
#ifndef GROUPED  // items of experts, made on the GPU
#define GROUPED 0
#endif

constexpr int THREADS = 32 * WARPS;
constexpr int FRAGMENTS = BLOCK_M / 16;
constexpr int TOKENS = BLOCK_N / 8;  // of a lane, from each row of B
// Rows that are aligned for it come in pieces; others, and single tokens, as the 4-byte words that hold them.
constexpr bool BY_WORDS = UNIT == 2 || TOKENS == 1;
constexpr int PIECE_BYTES = BY_WORDS ? 4 : UNIT < 2 * TOKENS ? UNIT : 2 * TOKENS;
constexpr int PIECES = BY_WORDS ? TOKENS / 2 + 1 : 2 * TOKENS / PIECE_BYTES;
constexpr int WORDS = TOKENS == 1 ? 1 : TOKENS / 2;  // of the tokens of a lane in a row
constexpr int STORE_BYTES = UNIT < 4 * TOKENS ? UNIT : 4 * TOKENS;

constexpr int WEIGHT_BYTES = FRAGMENTS * 512;  // of a k16
constexpr int ROW_BYTES = PIECES * 32 * PIECE_BYTES;
constexpr int SLOT_BYTES = WEIGHT_BYTES + 4 * ROW_BYTES + (BY_WORDS ? 128 : 0);
constexpr int COLUMN_SLOTS = 2 * DEPTH;
constexpr int COLUMN_BYTES = 32;  // 16 numbers of a k16
constexpr int RING_BYTES = DEPTH * SLOT_BYTES + COLUMN_SLOTS * COLUMN_BYTES;
constexpr int SUM_BYTES = FRAGMENTS * TOKENS * 512;
constexpr int WARP_BYTES = RING_BYTES > SUM_BYTES ? RING_BYTES : SUM_BYTES;
constexpr int SHARED_BYTES = WARPS * WARP_BYTES;

static_assert(BLOCK_M % 16 == 0 && BLOCK_N % 8 == 0 && WARP_BYTES % 16 == 0);
#ifdef PLAN_SHARED_BYTES
static_assert(PLAN_SHARED_BYTES == SHARED_BYTES, "the plan says another amount of shared memory");
static_assert(PLAN_THREADS == THREADS, "the plan says another number of threads");
#endif
