// The tile kernel through mma.sync: C rows of a tile = packed weights x gathered rows of B, for GPUs without wgmma.
//
// Contract: launch 256 threads and SHARED_BYTES of dynamic shared memory per block, as many blocks as the records
// have. Eight equal warps copy and multiply; a block computes its items in the order of the plan. B and C are
// row-major with rows of `tokens` elements, 16-byte aligned. Sums are fp32. C is written exactly once at every row
// of the row lists and nowhere else. With ASYNC copies use cp.async (sm_80 and later), without it they go through
// registers (sm_75, fp16 only).
//
// Defines: BLOCK_M, BLOCK_N, PART_M, PART_N, STAGES, ASYNC, PIPELINED, PDL (mma_shape.cuh); BF16, BIAS, ACTIVATION
// (activation.cuh); GUARD (ptx.cuh); MOST_REGISTERS per thread; PLAN_THREADS, PLAN_SHARED_BYTES: values of the plan
// that are checked.
#include "mma_end.cuh"

__device__ __forceinline__ void clear(Sums& sums) {
#pragma unroll
  for (int q = 0; q < QUADS * 4; ++q) sums[q / 4 / N8][q / 4 % N8][q % 4] = 0.0f;
}

__device__ __forceinline__ void read_clock(u64* clock) {
  clock[0] = clock64();
  clock[1] = global_nanoseconds();
}

__device__ __forceinline__ void work(const MmaArgs& args, StepRange range, u32 base) {
  const Place me;
  const Reader reader(base, me);
  Fetcher fetcher(args, range, base);
  fetcher.begin();
  Multiplier multiplier;
  multiplier.start(reader);
  Sums sums;
  Rows rows;
  int slot = 0;
#pragma unroll 1
  for (int i = 0; i < range.count; ++i) {
    const int4 record = fetcher.record(i);
    if (record.w & FIRST_STEP) {
      clear(sums);
      rows.load(args, record.z, me);
    }
    multiplier.step(sums, reader, fetcher, i, slot);
    if (record.w & LAST_STEP) finish(args, sums, rows, fetcher.token(i, record), record.w, me);
    slot = after(slot);
  }
}

extern "C" __global__ void __maxnreg__(MOST_REGISTERS)
    tile_mma(const __grid_constant__ MmaArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const StepRange range = steps_of_block(args);
#if PDL
  let_next_launch_start();
#endif
  if (range.count == 0) return;
  const bool timed = args.clock != nullptr && blockIdx.x == 0 && threadIdx.x == 0;
  if (timed) read_clock(args.clock);
  work(args, range, shared_address(shared));
  if (timed) read_clock(args.clock + 2);
}
