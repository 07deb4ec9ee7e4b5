// Measures how much of cyclically used data stays in L2 while other data are written, by the latency of its reads.
//
// Contract: in each round every block reads its share of `rows` rows of 512 bytes, which `sharers` blocks read in
// common, and writes `written` rows of a stream that is never read again. counts: histogram of read latencies in bins
// of 50 cycles, in rows, for the last rounds.
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 BINS = 64;

extern "C" __global__ void __launch_bounds__(128) reuse(const uint4* from, uint4* to, u32 rows, u32 sharers,
                                                        u32 written, u32 rounds, u32 counted, u32 spin, u32* counts,
                                                        u32* arrived) {
  __shared__ u32 found[BINS];
  const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const u32 groups = gridDim.x / sharers, group = blockIdx.x / sharers;
  if (threadIdx.x < BINS) found[threadIdx.x] = 0;
  __syncthreads();
  if (group < groups) {
    const u64 first = static_cast<u64>(rows) * group / groups, last = static_cast<u64>(rows) * (group + 1) / groups;
    const u32 share = static_cast<u32>(last - first);
    uint4 sum = {1, 2, 3, threadIdx.x};
    u64 at = 0;  // rows of the stream that this warp has written
    for (u32 round = 0; round < rounds; ++round) {
      u32 done = 0;
      for (u32 i = warp; i < share; i += 4) {
        const u64 row = first + i;
        const long long start = clock64();
        uint4 v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from + row * 32 + lane)
                     : "memory");
        sum.x ^= v.x + v.y;
        sum.y ^= v.z + v.w;
        asm volatile("" ::"r"(sum.x), "r"(sum.y) : "memory");
        const u32 took = static_cast<u32>(clock64() - start);
        const u32 slowest = __reduce_max_sync(0xffffffffu, took);
        if (lane == 0 && round + counted >= rounds) atomicAdd(&found[min(slowest / 50, BINS - 1)], 1);
        const u32 due = static_cast<u32>(static_cast<u64>(written) * (i / 4 + 1) / (share / 4 + 1));
        for (; done < due; ++done, ++at) {
          to[((at * gridDim.x + blockIdx.x) * 4 + warp) * 32 + lane] = sum;
        }
      }
      // Grid-wide barrier between rounds.
      __syncthreads();
      if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*reinterpret_cast<volatile u32*>(arrived) < (round + 1) * groups * sharers && clock64() > 0) __nanosleep(100);
      }
      __syncthreads();
      for (u32 s = 0; s < spin; ++s) __nanosleep(100);
    }
    if (sum.x == 0x12345678u && sum.y == 77u) to[0] = sum;
  }
  __syncthreads();
  if (threadIdx.x < BINS) atomicAdd(counts + threadIdx.x, found[threadIdx.x]);
}
