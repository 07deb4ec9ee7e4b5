// Columns of C that are no pixels of a convolution's output, but zeros between the lines of its images.
//
// Contract: BORDER 0 or 1. With 1 tokens are lines of `line` chunks of 8, of which the first `pixels` are those of images;
// the others are stored as zeros.
#pragma once
#include "ptx.cuh"

#ifndef BORDER
#define BORDER 0
#endif

__device__ __forceinline__ bool in_border(int token, int line, int pixels) {
  return static_cast<u32>(token) / 8 % static_cast<u32>(line) >= static_cast<u32>(pixels);
}
