// The sparse kernel for sm_90a: C rows of a tile = packed 2:4 weights x gathered rows of B, one block per SM.
//
// Contract: launch 384 threads and SHARED_BYTES of dynamic shared memory per block, as many blocks as the plan
// has. Warpgroup 0 copies, warpgroups 1 and 2 multiply. A block walks its items in the order of the plan. B and
// C are row-major with rows of `tokens` elements, 16-byte aligned, those of B less than 4 GB apart. Sums are fp32.
// C is written exactly once at every row of the row lists and nowhere else. Ring, list and producer are the tile
// kernel's.
//
// Defines: BLOCK_M, BLOCK_N, STAGES; BF16; BIAS, ACTIVATION, PDL, FENCE, GUARD (see the headers);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "sparse_consumer.cuh"
#include "tile_gather.cuh"
#include "tile_producer.cuh"

__device__ __forceinline__ void read_clock(u64* clock) {
  clock[0] = clock64();
  clock[1] = global_nanoseconds();
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) sparse_sm90(const __grid_constant__ SparseArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = shared_address(shared);
  const ItemRange range = items_of_block(args);
  if (range.begin == range.end) return;
  if (threadIdx.x == 0) {
    if (base & 1023) __trap();
    start_ring(base);
    start_list(base, args.items + range.begin, range.end - range.begin);
  }
  __syncthreads();
#if PDL
  let_next_launch_start();
#endif
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / WARPGROUP, 0);
  if (warpgroup == 0) {
    registers_give<PRODUCER_REGISTERS>();
    const bool timed = args.clock != nullptr && blockIdx.x == 0 && threadIdx.x == 0;
    if (timed) read_clock(args.clock);
    produce(args, base);
    if (timed) read_clock(args.clock + 2);
  } else {
    registers_take<CONSUMER_REGISTERS>();
    consume(args, range, base, threadIdx.x - WARPGROUP);
  }
}
