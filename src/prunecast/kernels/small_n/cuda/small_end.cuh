// The end of a block: the warps' sums added in their order, bias, activation, C.
//
// Contract: every warp leaves its sums where its ring was, in the order of the registers; all copies have landed.
// A thread adds the same numbers in the same order in every run. It writes 2 TOKENS neighbouring tokens of a row.
#pragma once
#include "activation.cuh"
#include "small_shape.cuh"
#include "small_args.cuh"

__device__ __forceinline__ void leave_sums(u32 to, int lane, const float (&sums)[FRAGMENTS][TOKENS][4]) {
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) {
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      const float* s = sums[f][t];
      store_shared_16(to + ((f * TOKENS + t) * 32 + lane) * 16, s[0], s[1], s[2], s[3]);
    }
  }
}

template <int BYTES>
__device__ __forceinline__ void store_words(unsigned char* to, const u32* words) {
  if constexpr (BYTES == 16) {
    *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
  } else if constexpr (BYTES == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  } else {
    *reinterpret_cast<u32*>(to) = words[0];
  }
}

#ifndef TOKEN_MAJOR  // C is (tokens, M) instead of (M, tokens)
#define TOKEN_MAJOR 0
#endif

#if !TOKEN_MAJOR
// 2 TOKENS tokens of a row of C from `token` on; those past the last are left out.
__device__ __forceinline__ void store_tokens(const SmallArgs& args, int row, int token, const u32 (&words)[TOKENS]) {
  unsigned char* to = args.c + args.c_row_bytes * row + 2ll * token;
  if constexpr (STORE_BYTES == 2) {
#pragma unroll
    for (int t = 0; t < 2 * TOKENS; ++t) {
      const u32 half = words[t / 2] >> (t % 2 * 16);
      if (token + t < args.tokens) reinterpret_cast<unsigned short*>(to)[t] = static_cast<unsigned short>(half);
    }
  } else {
#pragma unroll
    for (int p = 0; p < 4 * TOKENS / STORE_BYTES; ++p) {
      if (token + p * STORE_BYTES / 2 < args.tokens) {
        store_words<STORE_BYTES>(to + p * STORE_BYTES, words + p * STORE_BYTES / 4);
      }
    }
  }
}

#endif

// Half h of fragment f: rows f * 16 + 8 h + lane / 4.
#if TOKEN_MAJOR
constexpr int TOKENS_AT_ONCE = TOKENS < 2 ? TOKENS : 2;
// A lane's tokens t and TOKENS + t at a time: neighbouring lanes have neighbouring rows, so that nothing is gained by
// holding more, and 2 TOKENS addresses at once do not fit in registers.
__device__ __forceinline__ void add_and_store(const SmallArgs& args, u32 shared, int2 place, int task) {
  const int lane = task % 32, h = task / 32 % 2, f = task / 64;
  const int row = load_early(args.rows + place.x * BLOCK_M + f * 16 + 8 * h + lane / 4);
  if (row < 0) return;
  float bias = 0.0f;
#if BIAS
  bias = args.bias[row];
#endif
  const int first = place.y + 2 * TOKENS * (lane % 4);
  u32 from = shared + (f * TOKENS * 32 + lane) * 16 + h * 8;
#pragma unroll TOKENS_AT_ONCE
  for (int t = 0; t < TOKENS; ++t, from += 512) {
    float2 sum = load_shared_sums(from);
#pragma unroll
    for (int w = 1; w < WARPS; ++w) {
      const float2 other = load_shared_sums(from + w * WARP_BYTES);
      sum.x += other.x;
      sum.y += other.y;
    }
    const u32 both = pack(sum.x, sum.y, bias);
    const int token = first + t;
    unsigned char* to = args.c + args.c_row_bytes * token + 2ll * row;
    if (token < args.c_tokens) store_element(to, static_cast<unsigned short>(both));
    if (token + TOKENS < args.c_tokens) {
      store_element(to + args.c_row_bytes * TOKENS, static_cast<unsigned short>(both >> 16));
    }
  }
}
#else
// Of a gated unit half 0 of a fragment is the gate, half 1 up: neighbouring lanes have both, and the first one stores.
__device__ __forceinline__ void add_and_store(const SmallArgs& args, u32 shared, int2 place, int task) {
#if GLU
  static_assert(!TOKEN_MAJOR, "gated units are written as (features, tokens)");
  const int lane = task / 2 % 32, h = task % 2, f = task / 64;
#else
  const int lane = task % 32, h = task / 32 % 2, f = task / 64;
#endif
  const int row = load_early(args.rows + place.x * BLOCK_M + f * 16 + 8 * h + lane / 4);
#if !GLU
  if (row < 0) return;
#endif
  float sums[2 * TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; ++t) {
    const u32 from = shared + ((f * TOKENS + t) * 32 + lane) * 16 + h * 8;
    float2 sum = load_shared_sums(from);
#pragma unroll
    for (int w = 1; w < WARPS; ++w) {
      const float2 other = load_shared_sums(from + w * WARP_BYTES);
      sum.x += other.x;
      sum.y += other.y;
    }
    sums[t] = sum.x;
    sums[TOKENS + t] = sum.y;
  }
  float bias = 0.0f;
#if BIAS
  bias = args.bias[GLU ? max(row, 0) : row];
#endif
  u32 words[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; ++t) {
#if GLU
    const float even = sums[2 * t] + bias, odd = sums[2 * t + 1] + bias;
    words[t] = round_both(activate(even) * __shfl_xor_sync(0xffffffff, even, 1),
                          activate(odd) * __shfl_xor_sync(0xffffffff, odd, 1));
#else
    words[t] = pack(sums[2 * t], sums[2 * t + 1], bias);
#endif
  }
#if GLU
  if (row < 0 || h == 1) return;
#endif
  store_tokens(args, gated_row(row), place.y + 2 * TOKENS * (lane % 4), words);
}
#endif
