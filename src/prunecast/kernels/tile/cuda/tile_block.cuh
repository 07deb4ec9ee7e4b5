// What every block of a kernel that gathers does, the same for tiles and for 2:4.
//
// Contract: launch 384 threads and SHARED_BYTES of dynamic shared memory per block, as many blocks as the plan has.
// Warpgroup 0 copies, warpgroups 1 and 2 multiply: `multiply_items(range, base, thread)`. A block walks its items in the
// order of the plan. B and C are row-major with rows of `tokens` elements, 16-byte aligned, those of B less than 4 GB
// apart. Sums are fp32. C is written exactly once at every row of the row lists and nowhere else.
#pragma once
#include "tile_producer.cuh"

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

template <class Args, class Multiply>
__device__ __forceinline__ void run_block(const Args& args, Multiply multiply_items) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = shared_address(shared);
  keep_range(args, base);
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
    produce(args, base);
    if (timed) read_clock(args.clock + 2);
  } else {
    registers_take<CONSUMER_REGISTERS>();
    multiply_items(range, base, threadIdx.x - WARPGROUP);
  }
  end_together();
}
