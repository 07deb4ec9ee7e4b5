// What the host hands to the small-n kernel. `small/records.py` builds the same bytes.
#pragma once
#include "ptx_mma.cuh"

constexpr int MOST_RANGES_IN_ARGS = 440;

struct SmallArgs {
  const uint4* weights;    // [k16][fragment][lane]: see `pack.py`
  const uint2* columns;    // [k16][4]: four 16-bit columns of A, 65535 for none
  const int2* ranges;      // [block]: first k16, and how many
  const int2* places;      // [block]: tile in the row lists, first token; with GROUPED a negative tile for none
  const int* rows;         // [tile][BLOCK_M]: row of C, or -1
  const float* bias;       // (M,), read only with BIAS=1
  const unsigned char* b;  // (K, tokens) elements; a multiple of UNIT, and of 4
  unsigned char* c;        // (M, tokens) elements; a multiple of UNIT
  u64* clock;              // 4 numbers: cycles and nanoseconds at start and end; or null
  i64 b_row_bytes;
  i64 c_row_bytes;
  i64 b_end;               // elements from `b` to the end of its last row
  int b_shift;             // elements between `b` and the first token: 0, or 1 where B begins inside a word
  int tokens;
  int blocks_in_args;      // 0: ranges are read from memory
  int c_tokens;            // rows of C where it is token-major, (tokens, M) elements
  int2 first[MOST_RANGES_IN_ARGS];  // ranges again, so that the first copy waits for no load
};

static_assert(sizeof(SmallArgs) == 3632, "SMALL_ARGS in records.py has the same bytes");
