// Warpgroup tensor instructions m64nNk16 on random fp16 in shared memory: rate, latency, and power at a set duty.
// WIDTH is N: 64, 128, 192 or 256. Every warpgroup multiplies `batch` instructions, waits, and rests `rest_cycles`.
// times[block]: cycles; clocks[block]: cycles and nanoseconds of the whole run.
#include "../../kernels/cuda/wgmma.cuh"

#ifndef WIDTH
#define WIDTH 256
#endif
constexpr int LO = WIDTH == 256 || WIDTH == 192 ? 64 : WIDTH / 4;
constexpr int HI = WIDTH / 2 - LO;

extern "C" __global__ void __launch_bounds__(256) wgmma_rate(const uint4* data, u32 rounds, u32 batch,
                                                             u32 rest_cycles, u64* times, u64* clocks) {
  extern __shared__ __align__(1024) uint4 shared[];
  for (u32 i = threadIdx.x; i < 96 * 1024 / 16; i += blockDim.x) shared[i] = data[i];
  __syncthreads();
  fence_async_proxy();
  const u32 base = shared_address(shared) + (threadIdx.x / 128) * 8192;
  const u64 weights = (1ull << 62) | (64ull << 32) | ((base & 0x3ffff) >> 4);
  const u64 tokens = (1ull << 62) | (64ull << 32) | (512ull << 16) | (((shared_address(shared) + 32768) & 0x3ffff) >> 4);
  float lo[LO] = {}, hi[HI] = {};
  __syncthreads();
  const u64 ns = global_nanoseconds();
  const long long start = clock64();
  for (u32 r = 0; r < rounds; ++r) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (u32 i = 0; i < batch; ++i) multiply(lo, hi, weights + 2 * (i & 3), tokens + 128 * (i & 3), 1);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (rest_cycles) {
      const long long until = clock64() + rest_cycles;
      while (clock64() < until) {
      }
    }
  }
  const long long stop = clock64();
  float total = 0;
  for (int i = 0; i < LO; ++i) total += lo[i];
  for (int i = 0; i < HI; ++i) total += hi[i];
  if (threadIdx.x % 128 == 0) times[2 * blockIdx.x + threadIdx.x / 128] = stop - start;
  if (threadIdx.x == 0) {
    clocks[2 * blockIdx.x] = stop - start;
    clocks[2 * blockIdx.x + 1] = global_nanoseconds() - ns;
  }
  if (total == 1.2345f) clocks[0] = 0;
}
