// Asynchronous copies into shared memory, as a producer warpgroup makes them: 4 stages of STAGE_BYTES in flight.
// gather: 128 threads copy 16 bytes each, rows of ROW_BYTES from places that `rows` names (1024 of them).
// bulk: one thread issues bulk copies of ROW_BYTES. out: cycles per block.
#include "common.cuh"

#ifndef ROW_BYTES
#define ROW_BYTES 512
#endif
#ifndef STAGE_BYTES
#define STAGE_BYTES 32768
#endif
constexpr int STAGES = 4;
constexpr int ROWS = STAGE_BYTES / ROW_BYTES;
constexpr u32 LISTED = 1024;

extern "C" __global__ void __launch_bounds__(128) gather(const char* from, const int* rows, u64 pitch, u32 steps,
                                                         u64* out) {
  extern __shared__ __align__(1024) char ring[];
  __shared__ int listed[LISTED];
  for (u32 i = threadIdx.x; i < LISTED; i += 128) listed[i] = rows[i];
  constexpr int CHUNKS = ROW_BYTES / 16;
  const u32 base = shared_address(ring);
  u32 place = (blockIdx.x * 977u) % LISTED;
  __syncthreads();
  const long long start = clock64();
  for (u32 s = 0; s < steps; ++s) {
    const u32 slot = base + (s % STAGES) * STAGE_BYTES;
#pragma unroll 8
    for (int j = 0; j < STAGE_BYTES / 16 / 128; ++j) {
      const int chunk = j * 128 + threadIdx.x;
      const int row = listed[(place + chunk / CHUNKS) % LISTED];
      const char* source = from + row * pitch + (chunk % CHUNKS) * 16;
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot + chunk * 16), "l"(source) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 3;" ::: "memory");
    place = (place + ROWS) % LISTED;
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clock64() - start;
}

extern "C" __global__ void __launch_bounds__(128) bulk(const char* from, const int* rows, u64 pitch, u32 steps,
                                                       u64* out) {
  extern __shared__ __align__(1024) char ring[];
  __shared__ int listed[LISTED];
  for (u32 i = threadIdx.x; i < LISTED; i += 128) listed[i] = rows[i];
  __shared__ __align__(8) u64 barriers[STAGES];
  const u32 base = shared_address(ring);
  if (threadIdx.x == 0)
    for (int s = 0; s < STAGES; ++s) barrier_init(shared_address(barriers + s), 1);
  __syncthreads();
  if (threadIdx.x) return;
  u32 place = (blockIdx.x * 977u) % LISTED;
  const long long start = clock64();
  for (u32 s = 0; s < steps + STAGES; ++s) {
    const u32 barrier = shared_address(barriers + s % STAGES);
    if (s >= STAGES) barrier_wait(barrier, (s / STAGES - 1) & 1);
    if (s >= steps) continue;
    barrier_arrive_expect(barrier, STAGE_BYTES);
    for (int j = 0; j < ROWS; ++j) {
      const char* source = from + listed[(place + j) % LISTED] * pitch;
      asm volatile(
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
              base + (s % STAGES) * STAGE_BYTES + j * ROW_BYTES),
          "l"(source), "r"(ROW_BYTES), "r"(barrier)
          : "memory");
    }
    place = (place + ROWS) % LISTED;
  }
  out[blockIdx.x] = clock64() - start;
}
