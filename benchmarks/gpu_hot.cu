// Blocks that copy the same rows at the same time, as the balanced kernel does: when they are asked for and there.
//
// Contract: 512 threads a block, all blocks on the GPU at once, 64 KB of dynamic shared memory. A block copies
// `columns` rows of B, `valid` of 128 bytes of each and zeros for the rest, again and again: every time all
// blocks begin together, `again` bytes further on. times: cycles until all is asked for, and until all is there.
#define HALF 1
#include "../src/prunecast/kernels/cuda/balanced/element.cuh"

struct HotArgs {
  const unsigned char* b;
  u64* times;              // [round][block][2]
  u32* gate;               // zero
  i64 row_bytes;
  i64 again;
  i64 own;                 // bytes from the rows of one block to those of the next; 0: all read the same
  int valid;
  int columns;             // at most 512
  int ranges;              // of 128 bytes of a row, which blocks take in turn
  int rounds;
};

extern "C" __global__ void __launch_bounds__(512, 1) hot(const __grid_constant__ HotArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  const int word = threadIdx.x % 8;
  for (int round = 0; round < args.rounds; ++round) {
    __syncthreads();
    if (threadIdx.x == 0) {
      atomicAdd(args.gate, 1);
      while (*const_cast<volatile u32*>(args.gate) < (round + 1) * gridDim.x) {
      }
    }
    __syncthreads();
    const u64 began = clock64();
    const unsigned char* row = args.b + round * args.again + blockIdx.x * args.own +
                               static_cast<i64>(blockIdx.x % args.ranges) * 128 + word * 16;
#pragma unroll
    for (int from = 0; from < 512; from += 64) {
      const int place = from + threadIdx.x / 8;
      const bool there = word * 16 < args.valid && place < args.columns;
      fetch_16(shared + place * 128 + word * 16, row + (there ? place : 0) * args.row_bytes, there);
    }
    const u64 asked = clock64();
    wait_for_fetches();
    __syncthreads();
    const u64 there = clock64();
    if (threadIdx.x == 0) {
      u64* to = args.times + 2 * (static_cast<i64>(round) * gridDim.x + blockIdx.x);
      to[0] = asked - began, to[1] = there - began;
    }
  }
}
