// The token form of the tile kernel for sm_90a: 256 rows of packed weights x 128 gathered tokens per block.
//
// Contract: as `tile_sm90.cu`, boxes of C of 32 rows x 64 tokens, with tokens as the 64-row operand of wgmma. With CLUSTER=2 blocks 2 i and 2 i + 1
// walk lists of the same length whose items have the same tile and columns; they share the weights, of which
// each copies one half for both.
//
// Defines: BLOCK_M, BLOCK_N, STAGES; CLUSTER; BF16; BIAS, ACTIVATION, PDL, FENCE, GUARD (see the headers);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "tile_tokens_consumer.cuh"
#include "tile_tokens_producer.cuh"

__device__ __forceinline__ void read_clock(u64* clock) {
  clock[0] = clock64();
  clock[1] = global_nanoseconds();
}

// Barriers must be ready before anyone arrives, here or in the neighbour.
__device__ __forceinline__ void start_together() {
#if CLUSTER == 1
  __syncthreads();
#else
  cluster_sync();
#endif
}

// The neighbour may still arrive at barriers of this block.
__device__ __forceinline__ void end_together() {
#if CLUSTER > 1
  cluster_sync();
#endif
}

extern "C" __global__ void
#if CLUSTER > 1
__cluster_dims__(CLUSTER, 1, 1)
#endif
__launch_bounds__(THREADS, 1) tile_sm90(const __grid_constant__ TileArgs args, const __grid_constant__ TensorMap c_map) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = shared_address(shared);
  const ItemRange range = items_of_block(args);
  if (range.begin == range.end) return;
  if (threadIdx.x == 0) {
    if (base & 1023) __trap();
    start_ring(base);
    start_list(base, args.items + range.begin, range.end - range.begin);
  }
  start_together();
#if PDL
  let_next_launch_start();
#endif
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);
  if (warpgroup == 0) {
    registers_give<PRODUCER_REGISTERS>();
    const bool timed = args.clock != nullptr && blockIdx.x == 0 && threadIdx.x == 0;
    if (timed) read_clock(args.clock);
    produce(args, range, base);
    if (timed) read_clock(args.clock + 2);
  } else {
    registers_take<CONSUMER_REGISTERS>();
    consume(args, c_map, range, base, threadIdx.x - WARPGROUP);
  }
  end_together();
}
