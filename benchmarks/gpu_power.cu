// Tensor work at a set pace beside traffic of L2 or DRAM at a set pace, on random fp16: which clock it leaves.
//
// Contract: two warpgroups multiply `batch` instructions of 64 x WIDTH from shared memory in each round, one round in flight, a third
// one copies `bursts` rows of 512 bytes a warp into shared memory in each round of its own. Rounds begin
// `pace` cycles apart, never sooner. With `phase` cycles set, both rest in every second phase.
// SPARSE: the weights are 2:4. stamps: cycles and nanoseconds of the first block every 4096 cycles; clocks: those of
// each block's whole run, instructions of its first warpgroup, rows of its first copying warp.
#include "../src/prunecast/kernels/cuda/sparse/sparse_multiply.cuh"

#ifndef WIDTH
#define WIDTH 256
#endif
#ifndef SPARSE
#define SPARSE 0
#endif

constexpr u32 OPERANDS = 96 * 1024;
constexpr u32 LANDING = 32 * 1024;

struct PowerArgs {
  const uint4* data;       // 128 KB of random operands
  const uint4* pool;       // what is copied
  u64 rows;                // of 512 bytes in the pool
  u64* clocks;
  u64* stamps;
  u32 batch, pace, keep;   // instructions a round, cycles from round to round, products until sums start anew
  u32 bursts, fetch_pace;  // rows a warp and round, cycles from round to round
  u32 together;            // 1: all blocks read the same rows at the same time
  u32 phase;               // cycles of work, then as many of rest; 0: no rest
  u32 rounds;              // of products: the same for all warps, which multiply together
  u32 cycles;              // how long rows are copied
  u32 zeros;               // of 16: rows of weights that are zeros
};

__device__ __forceinline__ u32 mixed(u32 x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

__device__ __forceinline__ void wait_for(long long until) {
  while (clock64() < until) {
  }
}

// When the next round may begin: `pace` after the last one, and not in a phase of rest.
__device__ __forceinline__ long long next_round(long long start, long long now, u32 pace, u32 phase) {
  long long next = now + pace;
  if (phase && ((next - start) / phase) % 2) next = start + ((next - start) / phase + 1) * phase;
  return next;
}

__device__ __forceinline__ u32 places_of(u32 thread) {
  const u32 pairs[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe};
  u32 word = 0, random = mixed(thread + 77);
  for (int i = 0; i < 8; ++i) word |= pairs[(random >> (3 * i)) % 6] << (4 * i);
  return word;
}

__device__ __forceinline__ void multiply_rounds(const PowerArgs& args, u32 shared, long long start) {
  float sums[WIDTH / 2] = {};
  const u32 part = threadIdx.x / 128;
  const u32 base = shared + part * 16384;
  const u32 tokens_at = shared + 32768;
  const u32 places = places_of(threadIdx.x + 256 * blockIdx.x);
  u32 done = 0;
  u32 stamp = 0;
  long long last_stamp = 0;
  long long round = start;
  for (u32 r = 0; r < args.rounds; ++r) {
    wait_for(round);
    if (blockIdx.x == 0 && threadIdx.x == 0 && round - last_stamp > 4096 && stamp < 2000) {
      args.stamps[stamp++] = clock64();
      args.stamps[stamp++] = global_nanoseconds();
      last_stamp = round;
    }
    __syncwarp();
    multiply_fence();
    for (u32 i = 0; i < args.batch; ++i, ++done) {
      const u32 keep = done % args.keep != 0;
      const u32 slot = (done >> 2) & 1;
#if SPARSE
      const u64 weights = sparse_descriptor(base + slot * 4096) + SPARSE_NEXT_K32 * (done & 1);
      const u64 tokens = tokens_descriptor(tokens_at + slot * 32768) + TOKENS_NEXT_K32 * (done & 1);
      multiply_sparse<0>(sums, weights, tokens, places, keep);
#else
      const u64 weights = weights_descriptor(base + slot * 8192) + WEIGHTS_NEXT_K16 * (done & 3);
      const u64 tokens = tokens_descriptor(tokens_at + slot * 32768) + TOKENS_NEXT_K16 * (done & 3);
      multiply(sums, weights, tokens, keep);
#endif
    }
    multiply_commit();
    multiply_wait<1>();
    round = next_round(start, round, args.pace, args.phase);
    const long long now = clock64();
    if (round < now) round = now;
  }
  multiply_wait<0>();
  float total = 0;
  for (int i = 0; i < WIDTH / 2; ++i) total += sums[i];
  if (total == 1.2345f) args.clocks[0] = 0;
  if (threadIdx.x == 0) {
    args.clocks[4 * blockIdx.x + 2] = done;
    if (blockIdx.x == 0) args.stamps[2000] = stamp;
  }
}

__device__ __forceinline__ void fetch_rounds(const PowerArgs& args, u32 shared, long long start) {
  const u32 thread = threadIdx.x - 256, warp = thread / 32, lane = thread % 32;
  u32 fetched = 0;
  u32 row = args.together ? warp * 7919u : mixed(blockIdx.x * 4 + warp);
  for (long long round = start; round - start < args.cycles;) {
    wait_for(round);
    for (u32 i = 0; i < args.bursts; ++i, ++row, ++fetched) {
      const u64 from = (static_cast<u64>(mixed(row)) * args.rows) >> 32;
      const u32 to = shared + OPERANDS + ((row % 16) * 4 + warp) * 512 + lane * 16;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(args.pool + from * 32 + lane) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 3;" ::: "memory");
    round = next_round(start, round, args.fetch_pace, args.phase);
    const long long now = clock64();
    if (round < now) round = now;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  if (thread == 0) args.clocks[4 * blockIdx.x + 3] = fetched;
}

extern "C" __global__ void __launch_bounds__(384) draw(const PowerArgs args) {
  extern __shared__ __align__(1024) uint4 shared[];
  const uint4 nothing = {0, 0, 0, 0};
  for (u32 i = threadIdx.x; i < OPERANDS / 16; i += blockDim.x) {
    const bool zero = i < 2048 && (i / 8) % 16 < args.zeros;
    shared[i] = zero ? nothing : args.data[i];
  }
  fence_async_proxy();
  __syncthreads();
  const u64 ns = global_nanoseconds();
  const long long start = clock64();
  if (threadIdx.x < 256) {
    if (args.batch) multiply_rounds(args, shared_address(shared), start);
  } else if (args.bursts) {
    fetch_rounds(args, shared_address(shared), start);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    args.clocks[4 * blockIdx.x] = clock64() - start;
    args.clocks[4 * blockIdx.x + 1] = global_nanoseconds() - ns;
  }
}
