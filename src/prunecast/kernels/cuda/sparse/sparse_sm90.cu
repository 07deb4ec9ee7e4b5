// The sparse kernel for sm_90a: C rows of a tile = packed 2:4 weights x gathered rows of B, one block per SM.
//
// Contract: `tile_kernel.cuh`, but that weights are [stage]: values [BLOCK_M][32], 16-byte chunk c of row r at c xor
// (r/2 mod 4), then places; `c_map` is C in boxes of 16 rows x CHUNK_TOKENS tokens, swizzled as wide as a row of a box.
//
// Defines: BLOCK_M, BLOCK_N, STAGES; BF16; BIAS, ACTIVATION, PDL, FENCE, GUARD (see the headers);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "sparse_shape.cuh"  // before everything that depends on sizes
#include "sparse_producer.cuh"
#include "sparse_step.cuh"
#include "tile_epilogue.cuh"
#include "tile_kernel.cuh"
