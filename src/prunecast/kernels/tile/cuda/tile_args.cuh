// The records that the host hands to the tile kernel. `work_image.py` and `launch.py` build the same bytes.
//
// Item (int4): x first stage of the packed image; y k-steps | 16-column groups of the last step << 24 | owner of a split
//   tile << 27; z tile; w first token. An item has at least two steps: shorter ones are filled up with the null stage.
// Split (int4): x workspace slot (of this part, or of the owner's part 1); y other parts that an owner waits
//   for; z reduction group; w 0 whole, 1 part that hands its sums over, 2 owner.
//
// GROUPED 1: a launch has made the items, from the tokens of each expert of a layer. Block b has the list from `items` +
// b * `line_chunks` on. No tile is split. A launch between that one and this one lets this one start after it has waited
// itself, so that items are there from the start; an L1 may still have those of the last time. Include after the sizes
// of the form.
#pragma once
#include "border.cuh"

#ifndef FP8  // e4m3 operands: B is (tokens, K), and of every tile whole runs of 32 columns are kept
#define FP8 0
#endif

constexpr int MOST_BLOCKS_IN_ARGS = 160;
constexpr int COUNTERS_PER_GROUP = 16;
constexpr int WHOLE = 0, PART = 1, OWNER = 2;

struct TileArgs {
  const unsigned char* weights;  // [stage][BLOCK_M] of 128 bytes, 16-byte chunk c of row r at c xor (r mod 8)
  const int4* columns;           // [stage][16] of 4: columns of rows t, t + 16, t + 32, t + 48; -1 for none. With FP8
                                 // [stage]: first columns of its 4 runs; -32 for none
  const int4* items;
  const int4* splits;            // with GROUPED: of all blocks, how many items; x of the first
  const int* rows;               // [tile][BLOCK_M]: row of C, or -1
  const unsigned char* b;        // (K, tokens) elements
  unsigned char* c;              // (M, tokens) elements
  const float* bias;             // (M,), read only with BIAS=1
  float4* partials;              // [slot][warp][quad of registers][lane]
  u32* counters;                 // [group][half][warp], zero before and after every launch
  u64* clock;                    // 4 numbers: cycles and nanoseconds at start and end; or null
  i64 b_row_bytes;
  i64 c_row_bytes;
  int tokens;                    // a multiple of 8
  int null_stage;                // a stage of zeros without columns
  int blocks_in_args;            // 0: one item per block, and `start` and `first` are not filled
  int c_tokens;                  // rows of C where it is token-major, (tokens, M) elements
  int line_chunks;      // with BORDER: as in `border.cuh`; with GROUPED: items for which a list has room
  int pixel_chunks;
  int4 first[MOST_BLOCKS_IN_ARGS];     // first item of every block, so that it needs no load
  int start[MOST_BLOCKS_IN_ARGS + 4];  // items of block i: start[i] to start[i + 1]
#if BORDER
  Strides strides;
  Gaps gaps;
  i64 second;  // with SECOND: bytes from B to the second input, of pixels like those of B
  i64 reserved;
#endif
#if FP8
  const float* row_scales;    // (M,): a row of A is its e4m3 values times this
  const float* token_scales;  // (tokens,), of B
  i64 unused[4];
  TensorMap b_map;            // B in boxes of BLOCK_N tokens x 32 columns, swizzled as wide as that
#endif
};

static_assert(BORDER || !(STRIDED || SECOND), "what convolutions need stands with the border");
static_assert(!(BORDER && FP8), "convolutions have fp16 or bf16 operands");
static_assert(sizeof(TileArgs) == 3344 + 48 * BORDER + 176 * FP8, "TILE_ARGS in work_image.py has the same bytes");

using Args = TileArgs;  // for the headers that the sparse kernel shares

struct ItemRange {
  int begin;
  int end;
};

#if GROUPED
constexpr int RANGE_AT = BARRIERS_AT + 192;  // of shared memory: the items of this block

// Items go to the blocks in turn. The producer asks for the range of its block in every step, and must not load it.
__device__ __forceinline__ void keep_range(const TileArgs& args, u32 base) {
  if (threadIdx.x == 0) {
    const int items = load_past_l1(args.splits).x, blocks = gridDim.x, block = blockIdx.x;
    const int begin = block * args.line_chunks;
    store_shared(base + RANGE_AT, make_int4(begin, begin + max((items - block + blocks - 1) / blocks, 0), 0, 0));
  }
  __syncthreads();
}
#else
__device__ __forceinline__ void keep_range(const TileArgs&, u32) {}
#endif

__device__ __forceinline__ ItemRange items_of_block(const TileArgs& args) {
#if GROUPED
  extern __shared__ __align__(1024) unsigned char shared[];
  const int4 range = load_shared(shared_address(shared) + RANGE_AT);
  return {range.x, range.y};
#else
  int block;  // volatile, so that every role reads its range itself instead of all of them holding it
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  if (args.blocks_in_args == 0) return {block, block + 1};
  return {args.start[block], args.start[block + 1]};
#endif
}

__device__ __forceinline__ int4 load_item(const int4* from) {
#if GROUPED
  return load_past_l1(from);
#else
  return load_early(from);
#endif
}

__device__ __forceinline__ int4 first_item(const TileArgs& args) {
#if GROUPED
  return load_item(args.items + blockIdx.x * args.line_chunks);
#else
  return args.blocks_in_args == 0 ? load_item(args.items + blockIdx.x) : args.first[blockIdx.x];
#endif
}

__device__ __forceinline__ int4 split_of(const TileArgs& args, int place) {
#if GROUPED
  return make_int4(0, 0, 0, WHOLE);
#else
  return load_early(args.splits + place);
#endif
}

__device__ __forceinline__ int real_steps(int4 item) { return item.y & 0xffffff; }
__device__ __forceinline__ int steps_of(int4 item) { return max(real_steps(item), 2); }
__device__ __forceinline__ int last_k16(int4 item) { return item.y >> 24 & 7; }
__device__ __forceinline__ bool is_owner(int4 item) { return (item.y >> 27 & 1) != 0; }
