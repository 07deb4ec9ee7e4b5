// Reads of operand fragments from a pipeline stage, and their products.
//
// Contract: a warp multiplies its part of C, one step after the other, after one call of `start`. With PIPELINED it
// alternates between two sets of fragments: the first set of the next step is read after the barrier and before the
// last products of this step are issued, so that the tensor cores do not wait for shared memory. After the last step
// it reads fragments that are never used.
#pragma once
#include "mma_fragments.cuh"
#if ASYNC
#include "mma_fetch.cuh"
#else
#include "mma_fetch_registers.cuh"
#endif

using Sums = float[M16][N8][4];

struct Place {  // of a warp in the tile of C
  int warp, lane;
  int row, token;

  __device__ __forceinline__ Place() : warp(__shfl_sync(0xffffffff, threadIdx.x / 32, 0)), lane(threadIdx.x % 32) {
    row = warp / WARPS_N * PART_M;
    token = warp % WARPS_N * PART_N;
  }
};

__device__ __forceinline__ int after(int slot) { return slot + 1 == STAGES ? 0 : slot + 1; }
__device__ __forceinline__ int before(int slot) { return slot == 0 ? STAGES - 1 : slot - 1; }

#if SPARSE
#include "mma_multiply_sparse.cuh"
#else

struct Fragments {  // of 16 columns of a part
  Weights weights[M16];
  Tokens tokens[N16];
};

struct Reader {
  u32 weights_at, tokens_at;  // of this lane in the first stage

  __device__ __forceinline__ Reader(u32 base, const Place& me) {
    weights_at = base + me.row / 16 * 512 + me.lane * 16;
    const int chunk = me.token / 8 + me.lane / 16;
    tokens_at = base + WEIGHT_BYTES + me.lane % 16 * ROW_BYTES + (chunk ^ me.lane % 8) * 16;
  }

  // A part begins at a multiple of 4 chunks (8 with four pairs), so the swizzled address of pair j is `xor j * 32`.
  __device__ __forceinline__ void fragments(Fragments& f, int slot, int k16) const {
    const u32 stage = slot * STAGE_BYTES;
    static_assert(PART_N % 64 == 0 || PART_N == 32);
#pragma unroll
    for (int m = 0; m < M16; ++m) read(f.weights[m], weights_at + stage + k16 * WEIGHT_DEPTH_BYTES + m * 512);
#pragma unroll
    for (int j = 0; j < N16; ++j) read(f.tokens[j], (tokens_at + stage ^ j * 32) + k16 * 16 * ROW_BYTES);
  }
};

__device__ __forceinline__ void multiply(Sums& sums, const Fragments& f) {
#pragma unroll
  for (int j = 0; j < N16; ++j) {
#pragma unroll
    for (int m = 0; m < M16; ++m) {
      multiply(sums[m][2 * j], f.weights[m], f.tokens[j].r[0], f.tokens[j].r[1]);
      multiply(sums[m][2 * j + 1], f.weights[m], f.tokens[j].r[2], f.tokens[j].r[3]);
    }
  }
}

struct Multiplier {
#if PIPELINED
  Fragments first, second;

  __device__ __forceinline__ void start(const Reader& reader) {
    wait_step();
    reader.fragments(first, 0, 0);
  }

  __device__ __forceinline__ void step(Sums& sums, const Reader& reader, Fetcher& fetcher, int i, int slot) {
    reader.fragments(second, slot, 1);
    fetcher.issue(i, before(slot));
    multiply(sums, first);
    wait_step();
    reader.fragments(first, after(slot), 0);
    multiply(sums, second);
  }
#else
  __device__ __forceinline__ void start(const Reader&) {}

  __device__ __forceinline__ void step(Sums& sums, const Reader& reader, Fetcher& fetcher, int i, int slot) {
    Fragments f;
    wait_step();
    reader.fragments(f, slot, 0);
    fetcher.issue(i, before(slot));
    multiply(sums, f);
    reader.fragments(f, slot, 1);
    multiply(sums, f);
    fetcher.land(before(slot));
  }
#endif
};
#endif  // SPARSE
