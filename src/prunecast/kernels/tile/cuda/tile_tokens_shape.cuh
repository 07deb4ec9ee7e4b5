// Sizes of the token form of the tile kernel: 256 rows of weights, 128 tokens, tokens as the 64-row operand.
//
// Each of the two consumer warpgroups multiplies 64 of the tokens with all rows. CLUSTER is 1, or 2 blocks with the
// same weights and neighbouring tokens, of which each copies half of the weights for both.
#pragma once

#ifndef PDL
#define PDL 1
#endif
#ifndef FENCE
#define FENCE 1
#endif
#ifndef GROUPED  // items of experts, made on the GPU, see `tile_args.cuh`
#define GROUPED 0
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef FP8
#define FP8 0
#endif
#define TOKENS_FIRST 1  // which of the two is the 64-row operand

constexpr int WARPGROUP = 128;
constexpr int THREADS = 3 * WARPGROUP;
#if GLU  // gate and up at once
constexpr int PRODUCER_REGISTERS = 40;
constexpr int CONSUMER_REGISTERS = 232;
constexpr bool HOLDS_RANGE = false;  // consumers ask again in every item where their list ends
#else
constexpr int PRODUCER_REGISTERS = 56;
constexpr int CONSUMER_REGISTERS = 224;
constexpr bool HOLDS_RANGE = true;
#endif
constexpr int CONSUMER_WARPS = 8;

constexpr int WEIGHT_BYTES = BLOCK_M * 128;
constexpr int TOKEN_BYTES = BLOCK_N * 128;
constexpr int TOKEN_BLOCK_BYTES = 64 * 128;
constexpr int STAGE_BYTES = WEIGHT_BYTES + TOKEN_BYTES;
constexpr int STAGING_BYTES = 32768;
#if FP8  // a stage has four runs of 32 columns
constexpr int COLUMN_BYTES = 4 * 4;
#else
constexpr int COLUMN_BYTES = 64 * 4;  // of a stage
#endif
constexpr int STAGING_AT = STAGES * STAGE_BYTES;
constexpr int BARRIERS_AT = STAGING_AT + STAGING_BYTES;
constexpr int COLUMNS_AT = BARRIERS_AT + 1024;
constexpr int SHARED_BYTES = COLUMNS_AT + 2 * STAGES * COLUMN_BYTES;

constexpr int PART_SUMS = BLOCK_M / 2;  // registers of a thread

// A warpgroup turns its part of C in its own share of the staging buffer, one half of the rows at a time.
constexpr int HALF_ROWS = BLOCK_M / 2;
constexpr int HALF_BYTES = HALF_ROWS * 128;
#if GLU  // of gate and up one row is left: all of C is one half
constexpr int HALVES = 1;
#else
constexpr int HALVES = 2;
#endif
constexpr int KEPT_WORDS = PART_SUMS / 4;  // the other half, two sums a word

// What a consumer warpgroup reads of a stage begins here.
constexpr int GROUP_WEIGHTS_AT = 0;
#if FP8  // in a run tokens are 32 bytes each
constexpr int GROUP_TOKENS_AT = 64 * 32;
#else
constexpr int GROUP_TOKENS_AT = TOKEN_BLOCK_BYTES;
#endif

static_assert(BLOCK_M == 256 && BLOCK_N == 128, "128 registers of sums for 64 tokens x 256 rows");
static_assert(CLUSTER == 1 || CLUSTER == 2, "weights are copied whole or in halves");
static_assert(2 * HALF_BYTES == STAGING_BYTES, "one half for each of two warpgroups");
static_assert(SHARED_BYTES <= 232448, "more shared memory than a block may have");
#ifdef PLAN_SHARED_BYTES
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
#endif
