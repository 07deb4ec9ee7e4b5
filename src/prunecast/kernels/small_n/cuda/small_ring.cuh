// A warp's ring: copies of k16s on their way, and what they brought.
//
// Contract: a warp calls `start` once, then for its k16s in order `multiply` and `refill`. Group i of copies has
// all of k16 i, and the columns of k16 i + 2 DEPTH, on which the rows of B to be copied depend.
#pragma once
#include "small_args.cuh"
#include "small_shape.cuh"

struct Lane {
  u32 ring;                  // shared address of the warp's ring
  u32 columns;               // of its columns, behind the slots
  const uint4* weights;      // of the warp's first k16, of this lane
  const uint2* column_list;  // of the warp's first k16
  const unsigned char* b;    // first token of this lane
  i64 first_element;         // the same in elements from `args.b`
  int token;                 // first token of this lane
  int count;                 // k16s of the warp
  int lane;
};

__device__ __forceinline__ void copy_weights(const Lane& me, u32 slot, int i) {
  const uint4* from = me.weights + static_cast<i64>(i) * (WARPS * FRAGMENTS * 32);
#pragma unroll
  for (int f = 0; f < FRAGMENTS; ++f) copy_stream_16(slot + f * 512 + me.lane * 16, from + f * 32);
}

__device__ __forceinline__ u32 valid_bytes(i64 left) {
  return left >= 2 ? 4u : left <= 0 ? 0u : 2u;
}

// The four rows of B of this lane; columns in the halves of `four`.
__device__ __forceinline__ void copy_rows(const SmallArgs& args, const Lane& me, u32 slot, uint2 four) {
  const u32 to = slot + WEIGHT_BYTES + me.lane * PIECE_BYTES;
  u32 odd = 0;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const u32 column = ((r < 2 ? four.x : four.y) >> (r % 2 * 16)) & 0xffff;
    const bool there = column != 0xffff && me.token < args.tokens;
    if (BY_WORDS) {
      const i64 element = me.first_element + (args.b_row_bytes >> 1) * column;
      odd |= static_cast<u32>(element & 1) << r;
#pragma unroll
      for (int p = 0; p < PIECES; ++p) {
        const i64 word = (element >> 1) + p;
        const u32 valid = there ? valid_bytes(args.b_end - 2 * word) : 0u;
        copy_valid<PIECE_BYTES>(to + (r * PIECES + p) * 32 * PIECE_BYTES, valid ? args.b + 4 * word : args.b, valid);
      }
    } else {
      const unsigned char* row = there ? me.b + args.b_row_bytes * column : args.b;
#pragma unroll
      for (int p = 0; p < PIECES; ++p) {
        const bool inside = there && me.token + p * (PIECE_BYTES / 2) < args.tokens;
        copy_valid<PIECE_BYTES>(to + (r * PIECES + p) * 32 * PIECE_BYTES, inside ? row + p * PIECE_BYTES : args.b,
                                inside ? PIECE_BYTES : 0u);
      }
    }
  }
  if (BY_WORDS) store_shared_4(slot + WEIGHT_BYTES + 4 * ROW_BYTES + me.lane * 4, odd);
}

// Columns of k16 i, by two lanes; the others read them behind a `__syncwarp`.
__device__ __forceinline__ void copy_columns(const Lane& me, int i) {
  if (i < me.count && me.lane < 2) {
    const uint2* from = me.column_list + static_cast<i64>(i) * (WARPS * 4);
    copy_valid<16>(me.columns + i % COLUMN_SLOTS * COLUMN_BYTES + me.lane * 16, from + me.lane * 2, 16);
  }
}

// What needs nothing of the launch before: weights and columns. Then, behind it, rows of B.
__device__ __forceinline__ void start(const SmallArgs& args, const Lane& me) {
  uint2 four[DEPTH];
#pragma unroll
  for (int s = 0; s < DEPTH; ++s) {
    four[s] = make_uint2(0xffffffff, 0xffffffff);
    if (s < me.count) four[s] = load_early(me.column_list + static_cast<i64>(s) * (WARPS * 4) + me.lane % 4);
  }
#pragma unroll
  for (int s = 0; s < DEPTH; ++s) {
    if (s < me.count) copy_weights(me, me.ring + s * SLOT_BYTES, s);
  }
#pragma unroll
  for (int s = DEPTH; s < COLUMN_SLOTS; ++s) copy_columns(me, s);
#if PDL
  wait_for_last_launch();
#endif
#pragma unroll
  for (int s = 0; s < DEPTH; ++s) {
    if (s < me.count) copy_rows(args, me, me.ring + s * SLOT_BYTES, four[s]);
    commit_copies();
  }
}

// K16 i + DEPTH into the slot of k16 i, which this lane has read; a group even if there is none.
__device__ __forceinline__ void refill(const SmallArgs& args, const Lane& me, u32 slot, int i) {
  const int next = i + DEPTH;
  if (next < me.count) {
    copy_weights(me, slot, next);
    copy_rows(args, me, slot,
              load_shared_8(me.columns + next % COLUMN_SLOTS * COLUMN_BYTES + me.lane % 4 * 8));
    copy_columns(me, next + DEPTH);
  }
  commit_copies();
}
