// The token form of the tile kernel for sm_90a: 256 rows of packed weights x 128 gathered tokens per block, with tokens
// as the 64-row operand of wgmma.
//
// Contract: `tile_kernel.cuh`; `c_map` is C in boxes of 32 rows x 64 tokens. With CLUSTER=2 blocks 2 i and 2 i + 1 walk
// lists of the same length whose items have the same tile and columns; they share the weights, of which each copies one
// half for both.
//
// With FP8 A and B are e4m3, B is (tokens, K), and C, (tokens, M), is scaled by row and by token.
//
// Defines: BLOCK_M, BLOCK_N, STAGES; CLUSTER; FP8, TOKEN_MAJOR; BF16, of C; BIAS, ACTIVATION, PDL, FENCE, GUARD (see the headers);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "tile_tokens_epilogue.cuh"
#include "tile_tokens_gather.cuh"
#include "tile_kernel.cuh"
