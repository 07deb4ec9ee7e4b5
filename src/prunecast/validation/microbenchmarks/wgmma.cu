// Warpgroup tensor instructions m64nNk16 on random fp16 in shared memory: rate, latency, and power at a set duty.
// WIDTH is N: 64, 128, 192 or 256. Every warpgroup multiplies `batch` instructions, waits, and rests `rest_cycles`.
// times[block]: cycles; clocks[block]: cycles and nanoseconds of the whole run.
#include "../../kernels/tile/cuda/wgmma.cuh"

#ifndef WIDTH
#define WIDTH 256
#endif

extern "C" __global__ void __launch_bounds__(256) wgmma_rate(const uint4* data, u32 rounds, u32 batch,
                                                             u32 rest_cycles, u64* times, u64* clocks) {
  extern __shared__ __align__(1024) uint4 shared[];
  for (u32 i = threadIdx.x; i < 96 * 1024 / 16; i += blockDim.x) shared[i] = data[i];
  __syncthreads();
  fence_async_proxy();
  const u32 base = shared_address(shared) + (threadIdx.x / 128) * 8192;
  const u64 weights = weights_descriptor(base);
  const u64 tokens = tokens_descriptor(shared_address(shared) + 32768);
  float sums[WIDTH / 2] = {};
  __syncthreads();
  const u64 ns = global_nanoseconds();
  const long long start = clock64();
  for (u32 r = 0; r < rounds; ++r) {
    multiply_fence();
    for (u32 i = 0; i < batch; ++i) {
      multiply(sums, weights + WEIGHTS_NEXT_K16 * (i & 3), tokens + TOKENS_NEXT_K16 * (i & 3), 1);
    }
    multiply_commit();
    multiply_wait<0>();
    if (rest_cycles) {
      const long long until = clock64() + rest_cycles;
      while (clock64() < until) {
      }
    }
  }
  const long long stop = clock64();
  float total = 0;
  for (int i = 0; i < WIDTH / 2; ++i) total += sums[i];
  if (threadIdx.x % 128 == 0) times[2 * blockIdx.x + threadIdx.x / 128] = stop - start;
  if (threadIdx.x == 0) {
    clocks[2 * blockIdx.x] = stop - start;
    clocks[2 * blockIdx.x + 1] = global_nanoseconds() - ns;
  }
  if (total == 1.2345f) clocks[0] = 0;
}
