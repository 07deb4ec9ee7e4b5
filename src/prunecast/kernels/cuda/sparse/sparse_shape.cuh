// Sizes of one compiled form of the sparse kernel, all from the defines BLOCK_M, BLOCK_N and STAGES.
//
// Two consumer warpgroups share the block's tile of C by rows: ROW_GROUPS groups of 64 rows each, all tokens. A group is
// one instruction high.
#pragma once

#ifndef PDL
#define PDL 1
#endif
#ifndef FENCE
#define FENCE 1
#endif
#define CLUSTER 1

constexpr int WARPGROUP = 128;
constexpr int THREADS = 3 * WARPGROUP;
constexpr int PRODUCER_REGISTERS = 56;
constexpr int CONSUMER_REGISTERS = 224;
constexpr int CONSUMER_WARPS = 8;

constexpr int ROW_GROUPS = BLOCK_M / 128;
constexpr bool SPLIT_ROWS = true;
constexpr int PART_TOKENS = BLOCK_N;
constexpr int GROUP_SUMS = BLOCK_N / 2;
constexpr int PART_SUMS = ROW_GROUPS * GROUP_SUMS;  // registers of a thread

// A stage: kept values, places of the values, tokens; 64 columns of which 32 are kept
constexpr int VALUE_BYTES = BLOCK_M * 64;
constexpr int GROUP_BYTES = 64 * 64;
constexpr int PLACE_BYTES = BLOCK_M * 8;
constexpr int WEIGHT_BYTES = VALUE_BYTES + PLACE_BYTES;
constexpr int TOKEN_BYTES = BLOCK_N * 128;
constexpr int TOKEN_BLOCK_BYTES = 64 * 128;
constexpr int STAGE_BYTES = TOKEN_BYTES + WEIGHT_BYTES;

// What a consumer warpgroup reads of a stage begins here.
constexpr int GROUP_WEIGHTS_AT = ROW_GROUPS * GROUP_BYTES;
constexpr int GROUP_TOKENS_AT = 0;

constexpr int HALF_TILE_BYTES = BLOCK_M * BLOCK_N;
constexpr int STAGING_BYTES = HALF_TILE_BYTES < 32768 ? HALF_TILE_BYTES : 32768;
constexpr int STAGING_AT = STAGES * STAGE_BYTES;
constexpr int BARRIERS_AT = STAGING_AT + STAGING_BYTES;
constexpr int SHARED_BYTES = BARRIERS_AT + 1024;

static_assert(BLOCK_M == 128 || BLOCK_M == 256, "a warpgroup takes one or two groups of 64 rows");
static_assert(BLOCK_N == 64 || BLOCK_N == 128 || (BLOCK_N == 256 && ROW_GROUPS == 1), "sums must fit into registers");
static_assert(STAGE_BYTES % 1024 == 0 && WEIGHT_BYTES % 1024 == 0, "the swizzle repeats every 1024 bytes");
static_assert(SHARED_BYTES <= 232448, "more shared memory than a block may have");
#ifdef PLAN_SHARED_BYTES
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
#endif
