// Compile-time sizes of the mma.sync tile kernel, from the defines BLOCK_M, BLOCK_N, BLOCK_K, PART_M, PART_N, STAGES,
// ASYNC and SPARSE.
//
// Eight equal warps both copy and multiply; each computes PART_M x PART_N of the block's tile of C. A stage contains
// BLOCK_K kept columns: the weights in the register order of the instruction, [depth][m16][lane] of 16 bytes, then
// BLOCK_K rows of BLOCK_N tokens, in which the 16-byte chunk c is stored at position c xor (row mod 8). An instruction
// is 16 columns deep. With SPARSE it is 32 deep, of which a row keeps 16; the metadata (positions of the kept values)
// follow the weights: [m16][row of 8][16 columns] of a word, whose upper half belongs to the row 8 further on.
#pragma once

#ifndef ASYNC  // 1: copies by cp.async and m16n8k16 (sm_80); 0: through registers and m16n8k8 (sm_75)
#define ASYNC 1
#endif
#ifndef PIPELINED  // 1: two sets of fragments, read half a step ahead of the products
#define PIPELINED 0
#endif
#ifndef SPARSE  // 1: 2:4 weights, a row keeps two of every four columns of a step (sm_80)
#define SPARSE 0
#endif
#ifndef BLOCK_K  // 32; with SPARSE 32 or 64
#define BLOCK_K 32
#endif
#ifndef PDL
#define PDL 1
#endif

constexpr int THREADS = 256;
constexpr int WARPS = 8;
constexpr int STEP_COLUMNS = BLOCK_K;
constexpr int DEPTHS = STEP_COLUMNS / (SPARSE ? 32 : 16);  // instructions along K in a step

constexpr int WEIGHT_DEPTH_BYTES = BLOCK_M * 32;
constexpr int PLACES_AT = DEPTHS * WEIGHT_DEPTH_BYTES;
constexpr int PLACES_M16_BYTES = 64 * DEPTHS;
constexpr int PLACES_BYTES = SPARSE ? BLOCK_M / 16 * PLACES_M16_BYTES : 0;
constexpr int WEIGHT_BYTES = (PLACES_AT + PLACES_BYTES + 127) / 128 * 128;  // rows of tokens begin at whole lines
constexpr int ROW_BYTES = BLOCK_N * 2;
constexpr int STAGE_BYTES = WEIGHT_BYTES + STEP_COLUMNS * ROW_BYTES;
// After the stages, with ASYNC: column indices of the steps to be copied next, and step records
constexpr int COLUMNS_AT = STAGES * STAGE_BYTES;
constexpr int COLUMN_BYTES = STEP_COLUMNS * 4;
constexpr int COLUMN_SLOTS = 4;
constexpr int STEPS_AT = COLUMNS_AT + COLUMN_SLOTS * COLUMN_BYTES;
constexpr int STEP_SLOTS = 16;
constexpr int BESIDE_BYTES = COLUMN_SLOTS * COLUMN_BYTES + STEP_SLOTS * 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + (!ASYNC ? 0 : BESIDE_BYTES > 1024 ? BESIDE_BYTES : 1024);

constexpr int WARPS_N = BLOCK_N / PART_N;
constexpr int M16 = PART_M / 16;
constexpr int N16 = PART_N / 16;
constexpr int N8 = PART_N / 8;

// Copies of one thread in a stage
constexpr int SWIZZLED_ROWS = 8;
constexpr int LANES_PER_ROW = BLOCK_N / 8;
constexpr int ROWS_AT_ONCE = THREADS / LANES_PER_ROW;
constexpr int ROW_COPIES = STEP_COLUMNS / ROWS_AT_ONCE;
constexpr int WEIGHT_CHUNKS = WEIGHT_BYTES / 16;
constexpr int WEIGHT_COPIES = (WEIGHT_CHUNKS + THREADS - 1) / THREADS;

static_assert(BLOCK_M % PART_M == 0 && BLOCK_N % PART_N == 0, "parts fill the tile");
static_assert(BLOCK_M / PART_M * WARPS_N == WARPS, "eight warps own a part each");
static_assert(PART_M % 16 == 0 && PART_N % 32 == 0, "parts are whole instructions, and whole 64-byte stores");
static_assert(BLOCK_N % 64 == 0 && BLOCK_N <= 256, "rows of eight chunks for the swizzle");
static_assert(ROWS_AT_ONCE % 8 == 0, "rows of a thread share their place in the swizzle");
static_assert(SPARSE ? ASYNC && STEP_COLUMNS % 32 == 0 : STEP_COLUMNS == 32, "whole instructions; plain ones, two");
static_assert(DEPTHS <= 2, "a word of places serves two sparse instructions");
static_assert(!ASYNC || (STAGES <= COLUMN_SLOTS && 3 * (STAGES - 1) < STEP_SLOTS), "slots of steps under way");
static_assert(ASYNC || (STAGES == 2 && !PIPELINED), "registers hold one step between two slots");
#ifdef PLAN_SHARED_BYTES
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
#endif
