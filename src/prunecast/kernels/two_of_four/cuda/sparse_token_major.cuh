// The way of C to (tokens, M), the features of a token side by side; `sparse_epilogue.cuh` includes it with TOKEN_MAJOR=1.
//
// Contract: a warp turns its 16 rows x CHUNK_TOKENS tokens through its staging slot, 32 bytes a token, whole sectors of
// L2 that two lanes store where the rows follow one another; or else each element is stored by itself. C has
// `c_tokens` rows, B may have more.
#pragma once
static_assert(GLU == 0, "gated units are written as (features, tokens)");

constexpr int TURNED_BYTES = 32;  // of a token: 16 rows

// Where 8 rows of a token lie, so that 8 tokens meet all banks.
__device__ __forceinline__ u32 turned_at(u32 slot, int token, int half) {
  return slot + token * TURNED_BYTES + (half ^ token / 4 % 2) * 16;
}

__device__ __forceinline__ void stage_chunk(u32 slot, const float* sums, const Ending& ending, int lane) {
#pragma unroll
  for (int pair = 0; pair < CHUNK_TOKENS / 16; ++pair) {
    const float* s = sums + 8 * pair;
    const u32 to = turned_at(slot, pair * 16 + lane / 16 * 8 + lane % 8, lane / 8 % 2);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(pack(s[0], s[1], ending.bias[0])), "r"(pack(s[2], s[3], ending.bias[1])),
                 "r"(pack(s[4], s[5], ending.bias[0])), "r"(pack(s[6], s[7], ending.bias[1]))
                 : "memory");
  }
}

// Rows that lie anywhere: a row after the other, each lane its tokens.
__device__ __forceinline__ void store_elements(const SparseArgs& args, u32 slot, int own_row, int token, int lane) {
#pragma unroll 1
  for (int place = 0; place < 16; ++place) {
    const int row = __shfl_sync(0xffffffff, own_row, place);
    for (int own = lane; own < CHUNK_TOKENS; own += 32) {
      if (row < 0 || token + own >= args.c_tokens) continue;
      unsigned char* c = args.c + (token + own) * args.c_row_bytes + 2ll * row;
      *reinterpret_cast<unsigned short*>(c) = load_shared_2(turned_at(slot, own, place / 8) + place % 8 * 2);
    }
  }
}

__device__ __forceinline__ void store_chunk(const SparseArgs& args, u32 slot, const Ending& ending, int token,
                                            int lane) {
  const int first = __shfl_sync(0xffffffff, ending.row, 0);
  const bool in_line = first >= 0 && first % 8 == 0 && ending.row == first + lane % 16;
  if (!__all_sync(0xffffffff, in_line)) {
    store_elements(args, slot, ending.row, token, lane);
    return;
  }
  const int half = lane % 2;
#pragma unroll 1
  for (int own = lane / 2; own < CHUNK_TOKENS; own += 16) {
    if (token + own >= args.c_tokens) return;
    unsigned char* c = args.c + (token + own) * args.c_row_bytes + 2ll * (first + 8 * half);
    store_16(c, load_shared_16(turned_at(slot, own, half)));
  }
}
