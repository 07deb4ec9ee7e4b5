// Waiting: barriers, hand-overs between warps and between SMs, atomics, stores, and how blocks start.
#include "common.cuh"

extern "C" __global__ void sync_threads(u32 steps, u64* out) {
  __syncthreads();
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i) __syncthreads();
  if (threadIdx.x == 0) out[0] = clock64() - start;
}

// Two warps wake each other through two shared-memory barriers: cycles of `steps` round trips.
extern "C" __global__ void ping_pong(u32 steps, u64* out) {
  __shared__ __align__(8) u64 barriers[2];
  if (threadIdx.x == 0) {
    barrier_init(shared_address(barriers), 1);
    barrier_init(shared_address(barriers + 1), 1);
  }
  __syncthreads();
  const u32 me = threadIdx.x / 32;
  const u32 mine = shared_address(barriers + me), other = shared_address(barriers + 1 - me);
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i) {
    if (me == 0 && threadIdx.x == 0) barrier_arrive(other);
    barrier_wait(mine, i & 1);
    if (me == 1 && threadIdx.x == 32) barrier_arrive(other);
  }
  if (threadIdx.x == 0) out[0] = clock64() - start;
}

// Blocks 0 and 1 pass a flag through global memory with release and acquire: cycles of `steps` round trips.
extern "C" __global__ void pass_flag(u32* flags, u32 steps, u64* out) {
  if (threadIdx.x) return;
  u32* mine = flags + 64 * blockIdx.x;
  u32* other = flags + 64 * (1 - blockIdx.x);
  const long long start = clock64();
  for (u32 i = 1; i <= steps; ++i) {
    if (blockIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(other), "r"(i) : "memory");
    u32 seen = 0;
    for (u32 tries = 0; seen < i; ++tries) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(mine) : "memory");
      if (tries > 2000000u) __trap();
    }
    if (blockIdx.x == 1) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(other), "r"(i) : "memory");
  }
  if (blockIdx.x == 0) out[0] = clock64() - start;
}

// Each block adds to one counter of all, or to its own (apart = 1): cycles of `steps` dependent additions.
extern "C" __global__ void add_atomically(u32* counters, u32 apart, u32 steps, u64* out) {
  if (threadIdx.x) return;
  u32* counter = counters + (apart ? 64 * blockIdx.x : 0);
  u32 seen = 0;
  const long long start = clock64();
  for (u32 i = 0; i < steps; ++i) seen += atomicAdd(counter, 1u + (seen >> 31));
  out[2 * blockIdx.x] = clock64() - start;
  out[2 * blockIdx.x + 1] = seen;
}

// Eight warps of a block write `rows` rows of 512 bytes, 16 bytes a lane, as results leave a tile kernel; then a
// fence, so that the stores are done. times: issue, and until done.
extern "C" __global__ void store_rows(uint4* to, u64 pitch, u32 rows, u64* times) {
  char* base = reinterpret_cast<char*>(to) + blockIdx.x * u64(rows) * pitch;
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  const long long start = clock64();
  for (u32 r = warp; r < rows; r += blockDim.x / 32)
    *reinterpret_cast<uint4*>(base + r * pitch + 16 * lane) = {r, lane, warp, r ^ lane};
  __syncthreads();
  const long long issued = clock64();
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    times[2 * blockIdx.x] = issued - start;
    times[2 * blockIdx.x + 1] = clock64() - start;
  }
}

// Nothing, or the time at which every block begins and ends.
extern "C" __global__ void nothing() {}

extern "C" __global__ void stamp(u64* out, u32 work_cycles) {
  const u64 ns = nanoseconds();
  const long long start = clock64();
  while (clock64() - start < work_cycles) {
  }
  if (threadIdx.x == 0) {
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    out[4 * blockIdx.x] = ns;
    out[4 * blockIdx.x + 1] = nanoseconds();
    out[4 * blockIdx.x + 2] = start;
    out[4 * blockIdx.x + 3] = sm;
  }
}
