// The tile kernel for sm_90a: C rows of a tile = packed weights x gathered rows of B, one block per SM.
//
// Contract: `tile_kernel.cuh`; `c_map` is C in boxes of 16 rows x CHUNK_TOKENS tokens, swizzled as wide as a row of a
// box.
//
// Defines: BLOCK_M, BLOCK_N, STAGES; BF16; BIAS, ACTIVATION, PDL, FENCE, GUARD (see the headers);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "tile_epilogue.cuh"
#include "tile_gather.cuh"
#include "tile_kernel.cuh"
