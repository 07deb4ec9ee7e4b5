// The end of an item: sums of 64 rows of a warpgroup out of registers into C.
//
// Contract: every warp works alone on its 16 rows, 64 tokens at a time through a staging slot of its own. Rows of C
// are written where the row list says, 16 bytes a lane, 128 contiguous bytes a row.
#pragma once
#include "activation.cuh"
#include "sparse_args.cuh"
#include "sparse_shape.cuh"

constexpr int LANES_PER_ROW = CHUNK_TOKENS / 8;
constexpr int ROWS_AT_ONCE = 32 / LANES_PER_ROW;
constexpr int ROW_LOADS = 16 / ROWS_AT_ONCE;

// What a thread knows about the rows of one group of the item that it is going to finish.
struct Ending {
  int rows[ROW_LOADS];  // rows of C that this lane stores
  float bias[2];        // of the two rows whose sums this lane holds
};

__device__ __forceinline__ Ending prepare_ending(const SparseArgs& args, int4 item, int group_row, int lane) {
  Ending ending;
  const int* rows = args.rows + item.z * BLOCK_M + group_row;
#pragma unroll
  for (int i = 0; i < ROW_LOADS; ++i) ending.rows[i] = load_early(rows + i * ROWS_AT_ONCE + lane / LANES_PER_ROW);
#if BIAS
#pragma unroll
  for (int i = 0; i < 2; ++i) ending.bias[i] = load_early(args.bias + max(load_early(rows + i * 8 + lane / 4), 0));
#else
  ending.bias[0] = ending.bias[1] = 0.0f;
#endif
  return ending;
}

#if ACTIVATION == 2

__device__ __forceinline__ u32 round_pair(float even, float odd) {
  u32 both;
#ifdef BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(odd), "f"(even));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(odd), "f"(even));
#endif
  return both;
}

// Bias and GELU of 16 sums of every lane, through the warp's staging slot, where each lane keeps to itself. The
// polynomials of erf stand in the code once: unrolled over all sums they need more registers than there are.
__device__ __forceinline__ void activate_16(float* sums, const Ending& ending, u32 slot, int lane) {
  const u32 own = slot + 4 * lane;
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const float x = sums[i] + ending.bias[i / 2 % 2];
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(own + 128 * i), "f"(x) : "memory");
  }
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    float x;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(x) : "r"(own + 128 * i) : "memory");
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(own + 128 * i), "f"(activate(x)) : "memory");
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(sums[i]) : "r"(own + 128 * i) : "memory");
  }
}

#endif

__device__ __forceinline__ u32 finished_pair(const float* sums, float bias) {
#if ACTIVATION == 2
  return round_pair(sums[0], sums[1]);
#else
  return pack(sums[0], sums[1], bias);
#endif
}

// 16 rows x CHUNK_TOKENS tokens from registers to shared memory; 8 rows meet 8 different banks.
__device__ __forceinline__ void stage_chunk(u32 slot, float* sums, const Ending& ending, int lane) {
  const int row = lane % 16, half = lane / 16;
#if ACTIVATION == 2
  activate_16(sums, ending, slot, lane);
  activate_16(sums + 16, ending, slot, lane);
  __syncwarp();
#endif
#pragma unroll
  for (int pair = 0; pair < CHUNK_TOKENS / 16; ++pair) {
    const float* s = sums + 8 * pair;
    const u32 to = slot + row * CHUNK_TOKENS * 2 + ((2 * pair + half) ^ (row % 8)) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(finished_pair(s, ending.bias[0])), "r"(finished_pair(s + 2, ending.bias[1])),
                 "r"(finished_pair(s + 4, ending.bias[0])), "r"(finished_pair(s + 6, ending.bias[1]))
                 : "memory");
  }
}

__device__ __forceinline__ void store_chunk(const SparseArgs& args, u32 slot, const Ending& ending, int token,
                                            int lane) {
  const int chunk = lane % LANES_PER_ROW;
  const bool inside = token + 8 * chunk < args.tokens;
#pragma unroll
  for (int i = 0; i < ROW_LOADS; ++i) {
    const int row = i * ROWS_AT_ONCE + lane / LANES_PER_ROW;
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(slot + row * CHUNK_TOKENS * 2 + (chunk ^ (row % 8)) * 16)
                 : "memory");
    if (inside && ending.rows[i] >= 0) {
      store_16(args.c + ending.rows[i] * args.c_row_bytes + 2ll * (token + 8 * chunk), v);
    }
  }
}

// All tokens of one group of rows.
__device__ __forceinline__ void finish(const SparseArgs& args, Sums& sums, const Ending& ending, int token,
                                       u32 staging, int lane) {
#pragma unroll
  for (int chunk = 0; chunk < BLOCK_N / CHUNK_TOKENS; ++chunk) {
    __syncwarp();
    stage_chunk(staging, sums + chunk * CHUNK_TOKENS / 2, ending, lane);
    __syncwarp();
    store_chunk(args, staging, ending, token + chunk * CHUNK_TOKENS, lane);
  }
}
