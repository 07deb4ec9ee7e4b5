// The record that the host hands to the sparse kernel; `images.py` builds the same bytes.
//
// Item (int4), as of the tile kernel: x first stage of the packed image; y k-steps in the lower 24 bits; z tile;
// w first token. An item has at least two steps: shorter ones are filled up with the
// null stage. Split (int4), with SPLIT_K: as of the tile kernel.
#pragma once
#include "ptx.cuh"

#ifndef SPLIT_K  // tiles are split along K
#define SPLIT_K 0
#endif

constexpr int MOST_BLOCKS_IN_ARGS = 160;

struct SparseArgs {
  const unsigned char* weights;  // [stage]: values [BLOCK_M][32], chunk c of row r at c xor (r/2 mod 4); places
  const int4* columns;           // [stage][16] of 4: columns of rows t, t + 16, t + 32, t + 48; -1 for none
  const int4* items;
  const int* rows;               // [tile][BLOCK_M]: row of C, or -1
  const unsigned char* b;        // (K, tokens) elements
  unsigned char* c;              // (M, tokens) elements
  const float* bias;             // (M,), read only with BIAS=1
  u64* clock;                    // 4 numbers: cycles and nanoseconds at start and end; or null
  i64 b_row_bytes;
  i64 c_row_bytes;
  int tokens;                    // a multiple of 8
  int null_stage;                // a stage of zeros without columns
  int blocks_in_args;            // 0: one item per block, and `start` and `first` are not filled
  int c_tokens;                  // rows of C where it is token-major, (tokens, M) elements
  int4 first[MOST_BLOCKS_IN_ARGS];     // first item of every block, so that it needs no load
  int start[MOST_BLOCKS_IN_ARGS + 4];  // items of block i: start[i] to start[i + 1]
#if SPLIT_K
  const int4* splits;
  float4* partials;              // [slot][group of rows][warp][quad of registers][lane]
  u32* counters;                 // [split tile][group of rows][warp], zero before and after every launch
#endif
};

static_assert(sizeof(SparseArgs) == 3312 + 32 * SPLIT_K, "SPARSE_ARGS in images.py has the same bytes");

using Args = SparseArgs;  // for the headers of the tile kernel

struct ItemRange {
  int begin;
  int end;
};

__device__ __forceinline__ void keep_range(const SparseArgs&, u32) {}
__device__ __forceinline__ int4 load_item(const int4* from) { return load_early(from); }

__device__ __forceinline__ ItemRange items_of_block(const SparseArgs& args) {
  const int block = blockIdx.x;
  if (args.blocks_in_args == 0) return {block, block + 1};
  return {args.start[block], args.start[block + 1]};
}

__device__ __forceinline__ int4 first_item(const SparseArgs& args) {
  return args.blocks_in_args == 0 ? load_early(args.items + blockIdx.x) : args.first[blockIdx.x];
}

__device__ __forceinline__ int real_steps(int4 item) { return item.y & 0xffffff; }
__device__ __forceinline__ int steps_of(int4 item) { return max(real_steps(item), 2); }

// The ring brings no sums: consumers read those of other parts themselves.
__device__ __forceinline__ constexpr bool is_owner(int4) { return false; }
template <class Ring>
__device__ __forceinline__ void fetch_sums(const SparseArgs&, Ring&, int) {}
