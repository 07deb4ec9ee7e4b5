// Tokens of a convolution: where they lie in its input, and which are no pixels, but zeros between lines of images.
//
// Contract: BORDER 0 or 1. With 1 tokens are lines of `line` chunks of 8, of which the first `pixels` are those of images;
// the others are stored as zeros. STRIDED 0 or 1. With 1 pixels that follow each other lie apart in the input, and what
// is read for the border is any pixel of its line.
#pragma once
#include "ptx.cuh"

#ifndef BORDER
#define BORDER 0
#endif

#ifndef STRIDED
#define STRIDED 0
#endif

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
