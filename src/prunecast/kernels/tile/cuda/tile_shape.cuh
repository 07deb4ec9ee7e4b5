// Sizes of one compiled form of the tile kernel, all from the defines BLOCK_M, BLOCK_N and STAGES.
//
// Two consumer warpgroups share the block's tile of C: 64 rows each with 128 rows of weights, half of the
// tokens each with 64.
#pragma once
#include "border.cuh"

#ifndef PDL
#define PDL 1
#endif
#ifndef FENCE
#define FENCE 1
#endif
#ifndef GROUPED  // items of experts, made on the GPU, see `tile_args.cuh`
#define GROUPED 0
#endif
#define CLUSTER 1
#define TOKENS_FIRST 0  // which of the two is the 64-row operand

constexpr int WARPGROUP = 128;
constexpr int THREADS = 3 * WARPGROUP;
constexpr int PRODUCER_REGISTERS = 56;
constexpr int CONSUMER_REGISTERS = 224;
constexpr bool HOLDS_RANGE = !BORDER;  // convolutions have no register for it
constexpr int CONSUMER_WARPS = 8;

constexpr int WEIGHT_BYTES = BLOCK_M * 128;
constexpr int TOKEN_BYTES = BLOCK_N * 128;
constexpr int TOKEN_BLOCK_BYTES = 64 * 128;
constexpr int STAGE_BYTES = WEIGHT_BYTES + TOKEN_BYTES;
constexpr int HALF_TILE_BYTES = BLOCK_M * BLOCK_N;
constexpr int STAGING_BYTES = HALF_TILE_BYTES >= 32768 ? 32768 : HALF_TILE_BYTES >= 16384 ? 16384 : HALF_TILE_BYTES;
constexpr int COLUMN_BYTES = 64 * 4;  // of a stage
constexpr int STAGING_AT = STAGES * STAGE_BYTES;
constexpr int BARRIERS_AT = STAGING_AT + STAGING_BYTES;
constexpr int COLUMNS_AT = BARRIERS_AT + 1024;
constexpr int SHARED_BYTES = COLUMNS_AT + 2 * STAGES * COLUMN_BYTES;

constexpr bool SPLIT_ROWS = BLOCK_M == 128;
constexpr int PART_TOKENS = SPLIT_ROWS ? BLOCK_N : BLOCK_N / 2;
constexpr int PART_SUMS = PART_TOKENS / 2;  // registers of a thread

// Finished C leaves in chunks of a warp's 16 rows; some fit into its share of the staging buffer, the rest waits
// in registers.
constexpr int WARP_STAGING_BYTES = STAGING_BYTES / CONSUMER_WARPS;
constexpr int CHUNK_TOKENS = WARP_STAGING_BYTES >= 2048 ? 64 : 32;
#if GLU  // of gate and up one row is left
constexpr int CHUNK_ROWS = 8;
#else
constexpr int CHUNK_ROWS = 16;
#endif
constexpr int CHUNK_BYTES = CHUNK_ROWS * CHUNK_TOKENS * 2;
constexpr int CHUNK_SUMS = CHUNK_TOKENS / 2;
constexpr int CHUNK_WORDS = CHUNK_SUMS * CHUNK_ROWS / 32;
constexpr int CHUNKS = PART_TOKENS / CHUNK_TOKENS;
constexpr int CHUNKS_FIT = WARP_STAGING_BYTES / CHUNK_BYTES;
constexpr int CHUNKS_STAGED = CHUNKS % CHUNKS_FIT == 0 ? CHUNKS_FIT : CHUNKS_FIT / 2;
constexpr int CHUNKS_KEPT = CHUNKS - CHUNKS_STAGED;
constexpr int KEPT_WORDS = CHUNKS_KEPT > 0 ? CHUNKS_KEPT * CHUNK_WORDS : 1;

// What a consumer warpgroup reads of a stage begins here.
constexpr int GROUP_WEIGHTS_AT = SPLIT_ROWS ? 64 * 128 : 0;
constexpr int GROUP_TOKENS_AT = SPLIT_ROWS ? 0 : PART_TOKENS / 64 * TOKEN_BLOCK_BYTES;

static_assert(BLOCK_M == 128 || BLOCK_M == 64, "weights are the 64-row operand");
static_assert(BLOCK_N % 64 == 0 && PART_TOKENS >= 64 && PART_TOKENS <= 256, "tokens come in blocks of 64");
static_assert(CHUNKS % CHUNKS_STAGED == 0, "chunks leave the staging buffer together");
static_assert(STAGE_BYTES % 1024 == 0 && STAGING_AT % 1024 == 0, "the swizzle repeats every 1024 bytes");
static_assert(SHARED_BYTES <= 232448, "more shared memory than a block may have");
#ifdef PLAN_SHARED_BYTES
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
#endif
