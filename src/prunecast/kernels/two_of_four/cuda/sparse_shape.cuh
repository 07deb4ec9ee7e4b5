// Sizes of one compiled form of the sparse kernel, all from the defines BLOCK_M, BLOCK_N and STAGES.
//
// Two consumer warpgroups share the block's tile of C by rows: GROUPS groups of 64 rows each, all tokens. A
// group is one instruction high, so that its sums can be stored while the other group is multiplied.
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

constexpr int GROUPS = BLOCK_M / 128;
using Sums = float[BLOCK_N / 2];

// A stage: kept values, places of the values, tokens; 64 columns of which 32 are kept
constexpr int VALUE_BYTES = BLOCK_M * 64;
constexpr int GROUP_BYTES = 64 * 64;
constexpr int PLACE_BYTES = BLOCK_M * 8;
constexpr int WEIGHT_BYTES = VALUE_BYTES + PLACE_BYTES;
constexpr int TOKEN_BYTES = BLOCK_N * 128;
constexpr int TOKEN_BLOCK_BYTES = 64 * 128;
constexpr int STAGE_BYTES = WEIGHT_BYTES + TOKEN_BYTES;
constexpr int COLUMN_BYTES = 64 * 4;  // of a stage

// Tokens of one trip of a warp through its staging slot
constexpr int CHUNK_TOKENS = 64;
constexpr int CHUNK_BYTES = 16 * CHUNK_TOKENS * 2;
constexpr int STAGING_AT = STAGES * STAGE_BYTES;
constexpr int BARRIERS_AT = STAGING_AT + CONSUMER_WARPS * CHUNK_BYTES;
constexpr int COLUMNS_AT = BARRIERS_AT + 1024;
constexpr int SHARED_BYTES = COLUMNS_AT + 2 * STAGES * COLUMN_BYTES;

static_assert(BLOCK_M == 128 || BLOCK_M == 256, "a warpgroup takes one or two groups of 64 rows");
static_assert(BLOCK_N == 64 || BLOCK_N == 128 || (BLOCK_N == 256 && GROUPS == 1), "sums must fit into registers");
static_assert(WEIGHT_BYTES % 1024 == 0 && STAGE_BYTES % 1024 == 0, "the swizzle repeats every 1024 bytes");
static_assert(SHARED_BYTES <= 232448, "more shared memory than a block may have");
#ifdef PLAN_SHARED_BYTES
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
#endif
