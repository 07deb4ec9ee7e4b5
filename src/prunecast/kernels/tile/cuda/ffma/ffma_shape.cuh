// Compile-time sizes of the fp32 tile kernel, from the defines BLOCK_M, BLOCK_N, LANE_M, LANE_N, STAGES.
//
// Each of eight warps computes LANE_M * 4 x LANE_N * 8 of the block's tile of C, each lane LANE_M x LANE_N in pieces of
// four. A stage is 16 kept columns: weights [column][row], then as many rows of BLOCK_N tokens.
#pragma once

#ifndef ASYNC  // 1: copies by cp.async (sm_80); 0: through registers
#define ASYNC 1
#endif
#define ELEMENT_BYTES 4
#define PDL 1

constexpr int THREADS = 256;
constexpr int WARPS = 8;
constexpr int STEP_COLUMNS = 16;
constexpr int WEIGHT_ROW_BYTES = BLOCK_M * 4;
constexpr int ROW_BYTES = BLOCK_N * 4;
constexpr int WEIGHT_BYTES = STEP_COLUMNS * WEIGHT_ROW_BYTES;
constexpr int STAGE_BYTES = WEIGHT_BYTES + STEP_COLUMNS * ROW_BYTES;
// After the stages, with ASYNC: column indices of the steps to be copied next, and step records
constexpr int COLUMNS_AT = STAGES * STAGE_BYTES;
constexpr int COLUMN_BYTES = STEP_COLUMNS * 4;
constexpr int COLUMN_SLOTS = 4;
constexpr int STEPS_AT = COLUMNS_AT + COLUMN_SLOTS * COLUMN_BYTES;
constexpr int STEP_SLOTS = 16;
constexpr int SHARED_BYTES = STAGES * STAGE_BYTES + (ASYNC ? 1024 : 0);

constexpr int LANES_M = 4, LANES_N = 8;  // of a warp
constexpr int PART_M = LANES_M * LANE_M;
constexpr int PART_N = LANES_N * LANE_N;
constexpr int WARPS_N = BLOCK_N / PART_N;
constexpr int PIECES_N = LANE_N / 4;
constexpr int UNROLLED = LANE_M * LANE_N == 64 ? 1 : 8;  // columns; more would need more registers for operands than there are
constexpr int QUADS = LANE_M * PIECES_N;

// Copies of one thread in a stage
constexpr int SWIZZLED_ROWS = 1;
constexpr int LANES_PER_ROW = BLOCK_N / 4;
constexpr int ROWS_AT_ONCE = THREADS / LANES_PER_ROW;
constexpr int ROW_COPIES = STEP_COLUMNS / ROWS_AT_ONCE;
constexpr int WEIGHT_CHUNKS = WEIGHT_BYTES / 16;
constexpr int WEIGHT_COPIES = (WEIGHT_CHUNKS + THREADS - 1) / THREADS;

static_assert(BLOCK_M / PART_M * WARPS_N == WARPS && BLOCK_M % PART_M == 0, "eight warps own a part each");
static_assert(ROW_COPIES * ROWS_AT_ONCE == STEP_COLUMNS, "threads fetch whole rounds of rows");
static_assert(ASYNC ? STAGES <= COLUMN_SLOTS && 3 * (STAGES - 1) < STEP_SLOTS : STAGES == 2, "slots of steps under way");
static_assert(SHARED_BYTES == PLAN_SHARED_BYTES, "the plan gives a block another amount of shared memory");
static_assert(THREADS == PLAN_THREADS, "the plan gives a block another number of threads");
