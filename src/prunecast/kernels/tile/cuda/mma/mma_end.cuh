// Epilogue of an item: stores of C, or the exchange of partial sums of a split-K tile.
//
// Contract: every warp stores its part of C on its own. The lanes of a quad, which hold two tokens of each of four
// groups of eight, exchange words so that each lane holds eight tokens of one group: 16-byte stores, 64 contiguous
// bytes per row, without shared memory. The partial sums of a split tile are stored in the workspace in register order.
// One counter per warp counts the k-slices that have arrived, and the owner adds them in a fixed order, so that results
// are bitwise reproducible.
#pragma once
#include "activation.cuh"
#include "mma_multiply.cuh"

constexpr int QUADS = M16 * N8;
constexpr int LOADS_AT_ONCE = QUADS % 8 == 0 ? 8 : 4;  // of partial sums, 4 registers each
static_assert(QUADS % LOADS_AT_ONCE == 0);

// Rows of C of a warp's part, two registers at most; -1 for none.
struct Rows {
  int held[(PART_M + 31) / 32];

  __device__ __forceinline__ void load(const MmaArgs& args, int tile, const Place& me) {
    const int* rows = args.rows + tile * BLOCK_M + me.row;
#pragma unroll
    for (int i = 0; i < (PART_M + 31) / 32; ++i) held[i] = load_early(rows + i * 32 + me.lane % PART_M);
  }

  __device__ __forceinline__ int of(int m, int half, int lane) const {
    const int first = m * 16 + half * 8;
    return __shfl_sync(0xffffffff, held[first / 32], first % 32 + lane / 4);
  }
};

// Rounds two neighbouring sums to one word of C; sm_75 converts them separately.
__device__ __forceinline__ u32 word_of(float even, float odd, float bias) {
#if ASYNC
  return pack(even, odd, bias);
#else
  unsigned short low, high;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(low) : "f"(activate(even + bias)));
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(high) : "f"(activate(odd + bias)));
  return static_cast<u32>(high) << 16 | low;
#endif
}

// Transposes 4 x 4 words within each quad: lane q gets word q of its four lanes, in lane order.
__device__ __forceinline__ void transpose_quads(u32 (&word)[4], int lane) {
#pragma unroll
  for (int bit = 1; bit < 4; bit *= 2) {
    const bool upper = lane & bit;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const u32 given = __shfl_xor_sync(0xffffffff, upper ? word[i] : word[i + bit], bit);
      (upper ? word[i] : word[i + bit]) = given;
    }
  }
}

__device__ __forceinline__ void store_rows(const MmaArgs& args, const Sums& sums, const Rows& rows, int token_start,
                                           const Place& me) {
  const int first = token_start + me.token + me.lane % 4 * 8;
#if BORDER
  u32 zeros = 0;
#pragma unroll
  for (int n = 0; n < N8; n += 4) zeros |= in_border(first + n * 8, args.line_chunks, args.pixel_chunks) << n;
#endif
#pragma unroll
  for (int m = 0; m < M16; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      __syncwarp();  // prevents the compiler from interleaving many rows, which would spill
      const int row = rows.of(m, half, me.lane);
#if BIAS
      const float bias = load_early(args.bias + max(row, 0));
#else
      const float bias = 0.0f;
#endif
      unsigned char* to = args.c + row * args.c_row_bytes;
#pragma unroll
      for (int n = 0; n < N8; n += 4) {
        u32 word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          word[i] = word_of(sums[m][n + i][2 * half], sums[m][n + i][2 * half + 1], bias);
        }
        transpose_quads(word, me.lane);
#if BORDER
#pragma unroll
        for (int i = 0; i < 4; ++i) word[i] = zeros >> n & 1 ? 0 : word[i];
#endif
        const int token = first + n * 8;
        if (row >= 0 && token < args.tokens) {
          store_16(to + 2ll * token, make_uint4(word[0], word[1], word[2], word[3]));
        }
      }
    }
  }
}

__device__ __forceinline__ void hand_over(float4* to, const Sums& sums, u32* counter, int lane) {
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    const float(&s)[4] = sums[q / N8][q % N8];
    to[q * 32] = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncwarp();
  if (lane == 0) signal_add(counter);
}

// Adds the sums of the other k-slices in order, a few loads at a time, since all at once would exceed the registers.
__device__ __forceinline__ void take_over(const float4* from, Sums& sums, int parts, u32* counter, int lane) {
  if (lane == 0) {
    Patience patience;
    while (load_acquire(counter) != static_cast<u32>(parts)) patience.spend();
    *counter = 0;
  }
#pragma unroll 1
  for (int part = 0; part < parts; ++part) {
#pragma unroll
    for (int q = 0; q < QUADS; q += LOADS_AT_ONCE) {
      __syncwarp();
      float4 other[LOADS_AT_ONCE];
#pragma unroll
      for (int i = 0; i < LOADS_AT_ONCE; ++i) other[i] = load_past_l1(from + (q + i) * 32);
#pragma unroll
      for (int i = 0; i < LOADS_AT_ONCE; ++i) {
        float(&s)[4] = sums[(q + i) / N8][(q + i) % N8];
        s[0] += other[i].x, s[1] += other[i].y, s[2] += other[i].z, s[3] += other[i].w;
      }
    }
    from += WARPS * QUADS * 32;
  }
}

__device__ __forceinline__ void finish(const MmaArgs& args, Sums& sums, const Rows& rows, int token, int what,
                                       const Place& me) {
  if (what & (PART | OWNER)) {
    const int4 split = load_early(args.splits + (what >> PLACE_SHIFT));
    float4* partials = args.partials + (static_cast<i64>(split.x) * WARPS + me.warp) * (QUADS * 32) + me.lane;
    u32* counter = args.counters + split.z * WARPS + me.warp;
    if (what & PART) {
      hand_over(partials, sums, counter, me.lane);
      return;
    }
    take_over(partials, sums, split.y, counter, me.lane);
  }
  store_rows(args, sums, rows, token, me);
#if BORDER
#pragma unroll
  for (int i = 0; i < (PART_M + 31) / 32; ++i) {
    constexpr int LANES = PART_M < 32 ? 32 / PART_M : 1;  // of a row
    clear_gaps(args.c, args.c_row_bytes, args.tokens, args.gaps, rows.held[i], (token + me.token) / PART_N,
               (args.tokens + PART_N - 1) / PART_N, me.lane / (32 / LANES), LANES);
  }
#endif
}
