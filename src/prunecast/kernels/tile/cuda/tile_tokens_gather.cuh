// Rows of B into a stage, for the token form: 16 bytes a thread and instruction, or with FP8 a run of 32 columns of all
// tokens of the block by one box of the copy engine.
//
// Contract: thread t fetches chunk t mod 8 of both 64-token blocks of rows t/8 + 16 q, q = 0 to 3. Columns of -1 leave
// zeros; tokens beyond the row leave what the row ends with, which nobody stores. There are no branches, and one
// multiplication for each address: what a warp does for a stage has to fit into the time of a step, or the tensor cores
// wait however deep the ring is.
#pragma once
#include "tile_args.cuh"
#include "tile_tokens_shape.cuh"

#if FP8
// The stage's tokens: [run][token] of 32 bytes, 16-byte chunk c of token t at c xor (t / 4 mod 2).
struct Gather {
  const TileArgs* args;
  int token;

  __device__ __forceinline__ Gather(const TileArgs& tile_args, int first_token, int)
      : args(&tile_args), token(first_token) {}

  // By one thread; a run of -32 lies before B and leaves zeros.
  __device__ __forceinline__ void boxes(u32 to, int4 runs, u32 barrier) const {
    load_box(to, &args->b_map, runs.x, token, barrier);
    load_box(to + BLOCK_N * 32, &args->b_map, runs.y, token, barrier);
    load_box(to + 2 * BLOCK_N * 32, &args->b_map, runs.z, token, barrier);
    load_box(to + 3 * BLOCK_N * 32, &args->b_map, runs.w, token, barrier);
  }
};
#else

// B at this thread's chunk of both blocks of 64 tokens, where tokens beyond the row are moved to its end.
struct Gather {
  const unsigned char* from[2];
  int row_bytes;
  const TileArgs* args;  // the bytes to a second input would need registers here

  __device__ __forceinline__ Gather(const TileArgs& tile_args, int first_token, int chunk)
      : row_bytes(static_cast<int>(tile_args.b_row_bytes)), args(&tile_args) {
    const int token = first_token + 8 * chunk;
#pragma unroll
    for (int block = 0; block < 2; ++block) {
      const int first = min(token + 64 * block, args->tokens - 8);
#if STRIDED
      from[block] = args->b + source_of(first, args->line_chunks, args->pixel_chunks, args->strides);
#else
      from[block] = args->b + 2ll * first;
#endif
    }
  }

  __device__ __forceinline__ void stage(u32 to, int4 columns) const {
    row(to, columns.x);
    row(to + 2048, columns.y);
    row(to + 4096, columns.z);
    row(to + 6144, columns.w);
  }

  __device__ __forceinline__ void row(u32 to, int column) const {
    const i64 more = source_offset(*args, column);
    copy_16_of_row(to, from[0] + more, row_of_source(column), row_bytes);
    copy_16_of_row(to + TOKEN_BLOCK_BYTES, from[1] + more, row_of_source(column), row_bytes);
  }
};
#endif
