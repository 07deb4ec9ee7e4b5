// Kernel arguments and step records of the mma.sync tile kernel. `mma/records.py` builds the same bytes.
//
// Step (int4), one for each k-step of a block's items in order; an item without kept columns has one step of
// zeros: x stage of the packed weights; y first token of the item; z tile; w FIRST_STEP, LAST_STEP, PART, OWNER and,
//   from bit PLACE_SHIFT on, the index of a split item in `splits`.
// Split (int4): x workspace slot (of this k-slice, or of the owner's k-slice 1); y other k-slices that an owner waits
//   for; z reduction group.
#pragma once
#include "border.cuh"

#ifndef ELEMENT_BYTES  // of B and C
#define ELEMENT_BYTES 2
#endif

constexpr int MOST_BLOCKS_IN_ARGS = 900;
constexpr int CHUNK_TOKENS = 16 / ELEMENT_BYTES;  // tokens of a 16-byte copy

struct MmaArgs {
  const uint4* weights;    // [stage][k16][BLOCK_M / 16][lane]: the registers of one lane of mma.m16n8k16
  const int* columns;      // [stage][ROWS_AT_ONCE][ROW_COPIES]: of rows r, r + ROWS_AT_ONCE, ...; -1 for none
  const int4* steps;
  const int4* splits;
  const int* start;        // steps of block i: start[i] to start[i + 1]
  const int* rows;         // [tile][BLOCK_M]: row of C, or -1
  const float* bias;       // (M,), read only with BIAS=1
  float4* partials;        // [slot][warp][quad of registers][lane]
  u32* counters;           // [group][warp], zero before and after every launch
  const unsigned char* b;  // (K, tokens) elements
  unsigned char* c;        // (M, tokens) elements
  u64* clock;              // 4 numbers: cycles and nanoseconds at start and end; or null
  i64 b_row_bytes;
  i64 c_row_bytes;
  int tokens;              // whole chunks
  int blocks_in_args;      // 0: `first` is not filled, read `start`
  int first[MOST_BLOCKS_IN_ARGS + 4];  // the same as `start`, so that it needs no load
#if BORDER
  int line_chunks;  // as in `border.cuh`
  int pixel_chunks;
  Strides strides;
  Gaps gaps;
  i64 second;  // with SECOND: bytes from B to the second input, of pixels like those of B
#endif
};

static_assert(sizeof(MmaArgs) == 3736 + 48 * BORDER, "MMA_ARGS in records.py has the same bytes");
static_assert(BORDER || !(STRIDED || SECOND), "what convolutions need stands with the border");

// Bytes from the beginning of a row of B to a chunk of its tokens.
__device__ __forceinline__ i64 place_in_row(const MmaArgs& args, int token) {
#if STRIDED
  return source_of(token, args.line_chunks, args.pixel_chunks, args.strides);
#else
  return static_cast<i64>(ELEMENT_BYTES) * token;
#endif
}

enum What { FIRST_STEP = 1, LAST_STEP = 2, PART = 4, OWNER = 8, PLACE_SHIFT = 4 };

struct StepRange {
  int begin;
  int count;
};

__device__ __forceinline__ StepRange steps_of_block(const MmaArgs& args) {
  const int block = blockIdx.x;
  const bool here = args.blocks_in_args != 0;
  const int begin = here ? args.first[block] : load_early(args.start + block);
  const int end = here ? args.first[block + 1] : load_early(args.start + block + 1);
  return {begin, end - begin};
}
