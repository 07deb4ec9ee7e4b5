// Straight code: how fast warps come through instructions that they run for the first time, and again.
//
// Contract: any number of blocks and warps. Each warp runs 8 times 128 multiply-adds, none of which waits for
// another within 8, and all of that `rounds` times. times: [block][warp][round][8] cycles of each 128.
using u32 = unsigned int;

#define ONE(i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(sums[i]) : "f"(a), "f"(b));
#define EIGHT ONE(0) ONE(1) ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7)
#define MANY EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT EIGHT
#define SEGMENT(i) asm volatile("mov.u32 %0, %%clock;" : "=r"(at[i]) :: "memory"); MANY

extern "C" __global__ void __launch_bounds__(512, 1) fetch(u32* times, float* out, int rounds, float a, float b) {
  float sums[8] = {a, b, a, b, a, b, a, b};
  const int warp = threadIdx.x / 32;
  u32* to = times + 8ll * rounds * (blockIdx.x * (blockDim.x / 32) + warp);
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    u32 at[9];
    __syncthreads();
    SEGMENT(0) SEGMENT(1) SEGMENT(2) SEGMENT(3) SEGMENT(4) SEGMENT(5) SEGMENT(6) SEGMENT(7)
    asm volatile("mov.u32 %0, %%clock;" : "=r"(at[8]) :: "memory");
    if (threadIdx.x % 32 == 0) {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[8 * round + i] = at[i + 1] - at[i];
    }
  }
  float all = 0.0f;
#pragma unroll
  for (int i = 0; i < 8; ++i) all += sums[i];
  if (all == 1234.5f) out[0] = all;
}
