// One k16 out of the ring and through the tensor cores.
//
// Contract: `words[r][p]` is a pair of tokens of row r of B; a tensor instruction wants pairs of rows for one
// token. The even tokens of a lane are one instruction's columns, the odd ones the next one's.
#pragma once
#include "small_ring.cuh"

__device__ __forceinline__ void read_piece(u32 from, u32 (&words)[PIECES * PIECE_BYTES / 4], int piece) {
  if constexpr (PIECE_BYTES == 4) {
    words[piece] = load_shared_4(from);
  } else if constexpr (PIECE_BYTES == 8) {
    const uint2 v = load_shared_8(from);
    words[2 * piece] = v.x;
    words[2 * piece + 1] = v.y;
  } else {
    const uint4 v = load_shared_16(from);
    words[4 * piece] = v.x;
    words[4 * piece + 1] = v.y;
    words[4 * piece + 2] = v.z;
    words[4 * piece + 3] = v.w;
  }
}

__device__ __forceinline__ void read_rows(u32 slot, int lane, u32 (&words)[4][WORDS]) {
  u32 odd = 0;
  if (BY_WORDS) odd = load_shared_4(slot + WEIGHT_BYTES + 4 * ROW_BYTES + lane * 4);
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    u32 raw[PIECES * PIECE_BYTES / 4];
#pragma unroll
    for (int p = 0; p < PIECES; ++p) {
      read_piece(slot + WEIGHT_BYTES + (r * PIECES + p) * 32 * PIECE_BYTES + lane * PIECE_BYTES, raw, p);
    }
    const u32 shift = (odd >> r & 1) * 16;
#pragma unroll
    for (int p = 0; p < WORDS; ++p) {
      if constexpr (!BY_WORDS) {
        words[r][p] = raw[p];
      } else if constexpr (TOKENS == 1) {
        words[r][p] = raw[p] >> shift;
      } else {
        words[r][p] = __funnelshift_r(raw[p], raw[p + 1], shift);
      }
    }
  }
}

__device__ __forceinline__ void multiply(u32 slot, int lane, float (&sums)[FRAGMENTS][TOKENS][4]) {
  u32 words[4][WORDS];
  read_rows(slot, lane, words);
  u32 low[TOKENS], high[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; ++t) {
    const u32 halves = t % 2 == 0 ? 0x5410 : 0x7632;
    low[t] = __byte_perm(words[0][t / 2], words[1][t / 2], halves);
    high[t] = __byte_perm(words[2][t / 2], words[3][t / 2], halves);
  }
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) {
    const uint4 a = load_shared_16(slot + f * 512 + lane * 16);
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) mma_16_8_16(sums[f][t], a.x, a.y, a.z, a.w, low[t], high[t]);
  }
}
