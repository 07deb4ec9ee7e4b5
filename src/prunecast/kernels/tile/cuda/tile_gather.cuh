// Rows of B into a stage, for forms whose blocks take up to 256 tokens: 16 bytes a thread and instruction.
//
// Contract: include after `Args` of the kernel and the sizes of the form. Thread t fetches chunk t mod 8 of every 64-token
// block of rows t/8 + 16 q, q = 0 to 3. Columns of -1 and tokens beyond the row leave zeros and read nothing.
#pragma once
#include "border.cuh"
#include "ptx.cuh"

struct Gather {
  const unsigned char* from;  // B at this thread's token chunk of the item
  u32 row_bytes;
  int tokens_left;            // from this thread's chunk to the end of the row
  bool inside;                // all tokens of the item are there
#if STRIDED
  u32 at[BLOCK_N / 64];       // in a row, of this thread's chunk of each 64 tokens
#endif
  const Args* args;           // the bytes to a second input would need registers here

  __device__ __forceinline__ Gather(const Args& tile_args, int first_token, int chunk) : args(&tile_args) {
    const int token = first_token + 8 * chunk;
#if STRIDED
    from = args->b;
#pragma unroll
    for (int b = 0; b < BLOCK_N / 64; ++b) {
      at[b] = source_of(min(token + b * 64, args->tokens - 8), args->line_chunks, args->pixel_chunks, args->strides);
    }
#else
    from = args->b + 2ll * min(token, args->tokens - 8);
#endif
    row_bytes = static_cast<u32>(args->b_row_bytes);
    tokens_left = args->tokens - token;
    inside = first_token + BLOCK_N <= args->tokens;
  }

  __device__ __forceinline__ void stage(u32 to, int4 columns) const {
    if (inside) {
      whole(to, columns);
    } else {
      edge(to, columns);
    }
  }

  // Four rows, 16 apart, of one 64-token block
  __device__ __forceinline__ void block(u32 to, int4 columns, int block) const {
    copy_row(to, columns.x, block);
    copy_row(to + 2048, columns.y, block);
    copy_row(to + 4096, columns.z, block);
    copy_row(to + 6144, columns.w, block);
  }

  __device__ __forceinline__ void copy_row(u32 to, int column, int block) const {
    const unsigned char* row = from + static_cast<u64>(static_cast<u32>(row_of_source(column))) * row_bytes;
    row += source_offset(*args, column);
#if STRIDED
    copy_16_unless(to + block * TOKEN_BLOCK_BYTES, row + at[block], column < 0);
#else
    copy_16_unless(to + block * TOKEN_BLOCK_BYTES, row + block * 128, column < 0);
#endif
  }

  __device__ __forceinline__ void whole(u32 to, int4 columns) const {
#pragma unroll
    for (int b = 0; b < BLOCK_N / 64; ++b) block(to, columns, b);
  }

  __device__ __forceinline__ void edge(u32 to, int4 columns) const {
#if STRIDED
#pragma unroll  // or `at` would need an address
#else
#pragma unroll 1
#endif
    for (int b = 0; b < BLOCK_N / 64; ++b) {
      const int beyond = tokens_left > b * 64 ? 0 : -1;
      block(to, make_int4(columns.x | beyond, columns.y | beyond, columns.z | beyond, columns.w | beyond), b);
    }
  }
};
