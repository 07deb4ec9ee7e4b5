// Sizes of the token form of the tile kernel: 256 rows of weights, 128 tokens, tokens as the 64-row operand.
//
// Each of the two consumer warpgroups multiplies 64 of the tokens with all rows. The registers of a warpgroup
// are cut into two halves of the rows, LOW and HIGH, that can be multiplied and stored apart. CLUSTER is 1, or
// 2 blocks with the same weights and neighbouring tokens, of which each copies half of the weights for both.
#pragma once

#ifndef PDL
#define PDL 1
#endif
#ifndef FENCE
#define FENCE 1
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif

constexpr int WARPGROUP = 128;
constexpr int THREADS = 3 * WARPGROUP;
constexpr int PRODUCER_REGISTERS = 56;
constexpr int CONSUMER_REGISTERS = 224;
constexpr int CONSUMER_WARPS = 8;

constexpr int WEIGHT_BYTES = BLOCK_M * 128;
constexpr int TOKEN_BYTES = BLOCK_N * 128;
constexpr int TOKEN_BLOCK_BYTES = 64 * 128;
constexpr int STAGE_BYTES = WEIGHT_BYTES + TOKEN_BYTES;
constexpr int STAGING_BYTES = 32768;
constexpr int STAGING_AT = STAGES * STAGE_BYTES;
constexpr int BARRIERS_AT = STAGING_AT + STAGING_BYTES;
constexpr int SHARED_BYTES = BARRIERS_AT + 1024;

constexpr int HALF_ROWS = BLOCK_M / 2;
constexpr int HALF_SUMS = HALF_ROWS / 2;  // registers of a thread

// A warpgroup turns one half of its part of C at a time in its own share of the staging buffer
constexpr int HALF_BYTES = HALF_ROWS * 128;

static_assert(BLOCK_M == 256 && BLOCK_N == 128, "128 registers of sums for 64 tokens x 256 rows");
static_assert(CLUSTER == 1 || CLUSTER == 2, "weights are copied whole or in halves");
static_assert(2 * HALF_BYTES == STAGING_BYTES, "one half for each of two warpgroups");
static_assert(SHARED_BYTES <= 232448, "more shared memory than a block may have");
#ifdef PLAN_SHARED_BYTES
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
#endif
