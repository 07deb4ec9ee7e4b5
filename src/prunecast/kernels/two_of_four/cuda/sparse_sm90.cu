// The sparse kernel for sm_90a: C rows of a tile = packed 2:4 weights x gathered rows of B, one block per SM.
//
// Contract: `tile_block.cuh`. Ring, list and producer are the tile kernel's.
//
// Defines: BLOCK_M, BLOCK_N, STAGES; BF16; BIAS, ACTIVATION, PDL, FENCE, GUARD (see the headers);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "sparse_consumer.cuh"
#include "tile_gather.cuh"
#include "tile_block.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_sm90(const __grid_constant__ SparseArgs args) {
  run_block(args, [&](const ItemRange& range, u32 base, int thread) { consume(args, range, base, thread); });
}
