// Bandwidth: every thread reads or writes 16 bytes at a time, DEPTH of them in flight.
#include "common.cuh"

#ifndef DEPTH
#define DEPTH 8
#endif

__device__ __forceinline__ uint4 read_16(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// Reads `vectors` (16 bytes each), `repeats` times. A grid that holds less than the data goes round.
extern "C" __global__ void read_all(const uint4* from, u64 vectors, u32 repeats, uint4* sink) {
  uint4 sum = {0, 0, 0, 0};
  const u64 stride = u64(gridDim.x) * blockDim.x;
  for (u32 r = 0; r < repeats; ++r)
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride * DEPTH) {
      uint4 v[DEPTH];
#pragma unroll
      for (int d = 0; d < DEPTH; ++d) v[d] = i + d * stride < vectors ? read_16(from + i + d * stride) : sum;
#pragma unroll
      for (int d = 0; d < DEPTH; ++d) sum.x ^= v[d].x + v[d].y + v[d].z + v[d].w;
    }
  if (sum.x == 0x12345678u) *sink = sum;
}

extern "C" __global__ void write_all(uint4* to, u64 vectors, u32 repeats, uint4* sink) {
  const u64 stride = u64(gridDim.x) * blockDim.x;
  for (u32 r = 0; r < repeats; ++r)
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride) {
      const u32 x = static_cast<u32>(i) * 2654435761u;
      to[i] = {x, x ^ r, x + 1, x * 3};
    }
}

// Reads `vectors` and writes as many after them in memory.
extern "C" __global__ void copy_all(uint4* data, u64 vectors, u32 repeats, uint4* sink) {
  const u64 stride = u64(gridDim.x) * blockDim.x;
  for (u32 r = 0; r < repeats; ++r)
    for (u64 i = u64(blockIdx.x) * blockDim.x + threadIdx.x; i < vectors; i += stride * 4) {
      uint4 v[4];
#pragma unroll
      for (int d = 0; d < 4; ++d)
        if (i + d * stride < vectors) v[d] = read_16(data + i + d * stride);
#pragma unroll
      for (int d = 0; d < 4; ++d)
        if (i + d * stride < vectors) data[vectors + i + d * stride] = v[d];
    }
}

// Cycles in which the warps of a block read 16 bytes a lane from shared memory 4 times `steps`.
extern "C" __global__ void read_shared(u32 steps, u64* out) {
  extern __shared__ uint4 data[];
  const u32 base = shared_address(data) + 16 * threadIdx.x;
  data[threadIdx.x] = {threadIdx.x, 1, 2, 3};
  u32 sum = 0;
  __syncthreads();
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i) {
    uint4 v[4];
#pragma unroll
    for (int d = 0; d < 4; ++d)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[d].x), "=r"(v[d].y), "=r"(v[d].z), "=r"(v[d].w)
                   : "r"(base)
                   : "memory");
#pragma unroll
    for (int d = 0; d < 4; ++d) asm volatile("xor.b32 %0, %0, %1;" : "+r"(sum) : "r"(v[d].x ^ v[d].y ^ v[d].z ^ v[d].w));
  }
  __syncthreads();
  const long long stop = clock64();
  if (threadIdx.x == 0) out[2 * blockIdx.x] = stop - start;
  if (sum == 0x12345678u) out[2 * blockIdx.x + 1] = sum;
}
