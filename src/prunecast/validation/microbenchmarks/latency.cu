// Latencies: a chain of dependent reads by one thread.
#include "common.cuh"

// `next` holds byte offsets; past the L1. out: cycles of `steps` reads.
extern "C" __global__ void chase_global(const char* next, u32 steps, u64* out) {
  u32 at = 0;
  for (u32 i = 0; i < 64; ++i) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i)
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
  const long long stop = clock64();
  out[0] = stop - start;
  out[1] = at;
}

// The same in the L1.
extern "C" __global__ void chase_l1(const char* next, u32 steps, u64* out) {
  u32 at = 0;
  for (u32 i = 0; i < 2 * steps; ++i) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i)
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(at) : "l"(next + at) : "memory");
  const long long stop = clock64();
  out[0] = stop - start;
  out[1] = at;
}

extern "C" __global__ void chase_shared(u32 steps, u64* out) {
  __shared__ u32 next[256];
  next[threadIdx.x] = 4 * ((threadIdx.x + 33) % 256);
  __syncthreads();
  if (threadIdx.x) return;
  const u32 base = shared_address(next);
  u32 at = 0;
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(at) : "r"(base + at) : "memory");
  const long long stop = clock64();
  out[0] = stop - start;
  out[1] = at;
}

// Reads each of `lines` lines (128 bytes) once and times each read: near and far halves of L2.
extern "C" __global__ void probe_lines(const char* from, u32 lines, u32* out) {
  for (int pass = 0; pass < 2; ++pass)
    for (u32 i = 0; i < lines; ++i) {
      u32 value;
      const long long start = clock64();
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(value) : "l"(from + 128ull * i) : "memory");
      asm volatile("add.u32 %0, %0, 0;" : "+r"(value)::"memory");  // waits for the value
      const long long stop = clock64();
      out[i] = static_cast<u32>(stop - start) + (value == 0xdeadbeefu);
    }
}
