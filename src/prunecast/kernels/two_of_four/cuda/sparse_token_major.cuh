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

#if RESIDUAL
__device__ __forceinline__ u32 added(u32 c, u32 y) {
  const unsigned short low = static_cast<unsigned short>(c), high = static_cast<unsigned short>(c >> 16);
  return round_both(widened(low) + widened(static_cast<unsigned short>(y)),
                    widened(high) + widened(static_cast<unsigned short>(y >> 16)));
}
#endif

// Eight elements of C, or added to what is there.
__device__ __forceinline__ void store_8(unsigned char* c, uint4 y) {
#if RESIDUAL
  const uint4 was = *reinterpret_cast<const uint4*>(c);
  y = make_uint4(added(was.x, y.x), added(was.y, y.y), added(was.z, y.z), added(was.w, y.w));
#endif
  store_16(c, y);
}

// Rows that lie anywhere: a row after the other, each lane its tokens.
__device__ __forceinline__ void store_elements(const SparseArgs& args, u32 slot, const int* rows, int token, int lane) {
#pragma unroll 1
  for (int place = 0; place < 16; ++place) {
    const int row = load_early(rows + place);
#pragma unroll 1
    for (int own = lane; own < CHUNK_TOKENS; own += 32) {
      if (row < 0 || token + own >= args.c_tokens) continue;
      unsigned char* c = args.c + (token + own) * args.c_row_bytes + 2ll * row;
      store_element(c, load_shared_2(turned_at(slot, own, place / 8) + place % 8 * 2));
    }
  }
}

__device__ __forceinline__ void store_chunk(const SparseArgs& args, u32 slot, const Ending& ending, int token,
                                            int lane) {
  if (ending.first < 0) {
    store_elements(args, slot, args.rows + ~ending.first, token, lane);
    return;
  }
  const int half = lane % 2;
#pragma unroll 1
  for (int own = lane / 2; own < CHUNK_TOKENS; own += 16) {
    const int row = token + own;
    if (row >= args.c_tokens) return;
    unsigned char* c = args.c + row * args.c_row_bytes + 2ll * (ending.first + 8 * half);
    store_8(c, load_shared_16(turned_at(slot, own, half)));
  }
}
