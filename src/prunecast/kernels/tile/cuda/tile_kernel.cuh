// The tile kernel, the same for all forms.
//
// Contract: `tile_block.cuh`; include after `Gather`, `Ending` and `Outgoing` of the form.
#pragma once
#include "tile_consumer.cuh"
#include "tile_block.cuh"

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(THREADS, 1) tile_sm90(const __grid_constant__ TileArgs args, const __grid_constant__ TensorMap c_map) {
  run_block(args, [&](const ItemRange&, u32 base, int thread) { consume(args, c_map, base, thread); });
}
