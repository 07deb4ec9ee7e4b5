// Tokens of a convolution: where they lie in its input, and which are no pixels, but zeros between lines of images.
//
// Contract: BORDER 0 or 1. With 1 tokens are lines of `line` chunks of 8, of which the first `pixels` are those of images;
// the others are stored as zeros, and so is what lies between the rows of C. STRIDED 0 or 1. With 1 pixels that follow
// each other lie apart in the input, and what is read for the border is any pixel of its line. SECOND 0 or 1. With 1
// columns with the bit SECOND_SOURCE are rows of a second input.
#pragma once
#include "ptx.cuh"

#ifndef BORDER
#define BORDER 0
#endif

#ifndef STRIDED
#define STRIDED 0
#endif

#ifndef SECOND
#define SECOND 0
#endif

constexpr int SECOND_SOURCE = 1 << 30;

// Zeros outside of the rows of C, in chunks of 8 tokens.
struct Gaps {
  int between;   // after each row, up to the next one
  int edge;      // more of them before the first row and after the last one
  int last_row;  // of C
  int reserved;
};

struct Strides {
  int pixel_chunks;  // of a pixel of all images
  int pixel_bytes;   // from a pixel to the next in the input
  int line_bytes;    // from a line to the next
  int reserved;
};

// Bytes from the beginning of a row of B to 8 of its tokens.
__device__ __forceinline__ u32 source_of(int token, int line, int pixels, const Strides& strides) {
  const u32 chunk = static_cast<u32>(token) / 8, y = chunk / static_cast<u32>(line);
  const u32 behind = chunk - y * line, inside = behind < static_cast<u32>(pixels) ? behind : 0;
  const u32 x = inside / static_cast<u32>(strides.pixel_chunks);
  return y * strides.line_bytes + x * strides.pixel_bytes + (inside - x * strides.pixel_chunks) * 16;
}

__device__ __forceinline__ bool in_border(int token, int line, int pixels) {
  return static_cast<u32>(token) / 8 % static_cast<u32>(line) >= static_cast<u32>(pixels);
}

// Bytes from the first input to the one that a column is a row of.
template <class Args>
__device__ __forceinline__ i64 source_offset(const Args& args, int column) {
#if SECOND
  return column & SECOND_SOURCE ? args.second : 0;
#else
  return 0;
#endif
}

// The number of a row in its input; negative for none.
__device__ __forceinline__ int row_of_source(int column) {
#if SECOND
  return column & ~SECOND_SOURCE;
#else
  return column;
#endif
}

// Part `part` of `parts` of the zeros after row `row` of C, and around all rows if it is the first or the last one.
// `lanes` threads share the work. Each item clears a part, so that no block has to clear a whole line of images.
__device__ __forceinline__ void clear_gaps(unsigned char* c, i64 row_bytes, int tokens, const Gaps& gaps, int row,
                                           int part, int parts, int lane, int lanes) {
  if (row < 0 || part >= parts) return;
  unsigned char* end = c + row * row_bytes + 2ll * tokens;
  const uint4 zeros = make_uint4(0, 0, 0, 0);
#pragma unroll 1
  for (int i = part * gaps.between / parts + lane; i < (part + 1) * gaps.between / parts; i += lanes) {
    store_16(end + 16ll * i, zeros);
  }
  if (part == 0 && row == gaps.last_row) {
#pragma unroll 1
    for (int i = lane; i < gaps.edge; i += lanes) store_16(end + 16ll * (gaps.between + i), zeros);
  }
  if (row == 0) {
    const int all = gaps.between + gaps.edge;
#pragma unroll 1
    for (int i = part * all / parts + lane; i < (part + 1) * all / parts; i += lanes) {
      store_16(c - 16ll * (i + 1), zeros);
    }
  }
}
