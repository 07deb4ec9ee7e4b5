// Tensor instructions: rate and latency. Operands are random bits of fp16 that the host wrote.
#include "common.cuh"

#ifndef SPARSE
#define SPARSE 0
#endif

// mma.sync m16n8k16 (k32 where sparse), CHAINS independent sums; WARPS a block. out: cycles of `steps` rounds.
#ifndef CHAINS
#define CHAINS 8
#endif

extern "C" __global__ void mma_rate(const u32* data, u32 steps, u64* out) {
  float sum[CHAINS][4] = {};
  u32 a[4], b[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = data[threadIdx.x * 4 + i];
    b[i] = data[threadIdx.x * 4 + i + 4096];
  }
  const u32 meta = 0x44444444u;
  __syncthreads();
  const long long start = clock64();
  for (u32 s = 0; s < steps; ++s) {
#pragma unroll
    for (int c = 0; c < CHAINS; ++c) {
#if SPARSE
      asm volatile(
          "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
          : "+f"(sum[c][0]), "+f"(sum[c][1]), "+f"(sum[c][2]), "+f"(sum[c][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(meta));
#else
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(sum[c][0]), "+f"(sum[c][1]), "+f"(sum[c][2]), "+f"(sum[c][3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
    }
  }
  __syncthreads();
  const long long stop = clock64();
  float total = 0;
  for (int c = 0; c < CHAINS; ++c) total += sum[c][0] + sum[c][1] + sum[c][2] + sum[c][3];
  if (threadIdx.x == 0) out[2 * blockIdx.x] = stop - start;
  if (total == 1.2345f) out[2 * blockIdx.x + 1] = 1;
}
