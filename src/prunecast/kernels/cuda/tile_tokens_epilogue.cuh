// The end of an item of the token form: C out of registers, or the partial sums of a split tile out and in.
//
// Contract: the sums of a thread are those of two tokens, 8 apart, and of every row of the tile. A half of the
// rows is first settled: its registers are free afterwards, so that the next item may begin in them. What is
// then in shared memory is stored. The four warps of a warpgroup turn 128 rows x 64 tokens together, then each
// stores 32 of the rows: with one instruction of the copy engine where they follow one another in C, which keeps off
// the path of the gathers, or else 128 contiguous bytes each, where the row list says. Parts of a split tile lie in the
// workspace in the order of the registers; one counter per warp and half says how many have arrived, and the
// owner, part 0, adds them in the order of the parts, so that a result is the same in every run.
#pragma once
#if ACTIVATION == 2
#define ACTIVATE_INLINE __noinline__  // GELU 128 times in line makes the kernel spill, and three times as long
#endif
#include "activation.cuh"
#include "tile_args.cuh"
#include "tile_tokens_shape.cuh"

constexpr int PART_QUADS = BLOCK_M / 8;  // groups of 4 registers of a thread
constexpr int LOADS_AT_ONCE = 8;         // of partial sums, 4 registers each
constexpr int ROWS_AT_ONCE = 4;          // that a lane takes out of the staging buffer, 4 registers each
using Half = float[HALF_SUMS];

// What a thread knows about the item it is going to finish.
struct Ending {
  int place;            // of the item in the lists
  int action;           // 0 whole, 1 part that hands its sums over, 2 owner
  int token;            // of the 8 tokens that this lane stores
  int rows[2];          // row of C of place `lane` among those of a half that this warp stores
#if BIAS
  float bias[BLOCK_M / 32];  // of rows lane, lane + 32, ...
#endif
};

__device__ __forceinline__ Ending prepare_ending(const TileArgs& args, int place, int4 item, int group, int warp,
                                                 int lane) {
  Ending ending;
  const int* rows = args.rows + item.z * BLOCK_M;
  ending.place = place;
  ending.action = load_early(&args.splits[place].w);
  ending.token = item.w + group * 64 + lane % 8 * 8;
#pragma unroll
  for (int half = 0; half < 2; ++half) ending.rows[half] = load_early(rows + half * HALF_ROWS + warp * 32 + lane);
#if BIAS
#pragma unroll
  for (int i = 0; i < BLOCK_M / 32; ++i) {
    ending.bias[i] = load_early(args.bias + max(load_early(rows + i * 32 + lane), 0));
  }
#endif
  return ending;
}

// Bias of row `row` + 2 (lane mod 4) + `odd`, for a row known at compile time.
__device__ __forceinline__ float bias_of(const Ending& ending, int row, int odd, int lane) {
#if BIAS
  return __shfl_sync(0xffffffff, ending.bias[row / 32], row % 32 + lane % 4 * 2 + odd);
#else
  return 0.0f;
#endif
}

// Half of the rows x 64 tokens from registers to shared memory; chunk c of 16 bytes of row r lies at c xor (r mod 8).
template <int HALF>
__device__ __forceinline__ void stage_rows(u32 staging, const Half& sums, const Ending& ending, int warp, int lane) {
  const u32 to = staging + (lane / 16 * 8 + lane % 8) * 128 + ((2 * warp + lane / 8 % 2) ^ (lane % 8)) * 16;
#pragma unroll
  for (int row = 0; row < HALF_ROWS; row += 16) {
    const float* s = sums + row / 2;
    const int place = HALF * HALF_ROWS + row;
    const float b0 = bias_of(ending, place, 0, lane), b1 = bias_of(ending, place, 1, lane);
    const float b2 = bias_of(ending, place + 8, 0, lane), b3 = bias_of(ending, place + 8, 1, lane);
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + row * 128),
                 "r"(pack(s[0], s[1], b0, b1)), "r"(pack(s[2], s[3], b0, b1)), "r"(pack(s[4], s[5], b2, b3)),
                 "r"(pack(s[6], s[7], b2, b3))
                 : "memory");
  }
}

// The rows of this warp in what is staged of half HALF, wherever they lie in C. Loads and stores go in groups without branches: one after
// the other, each pair waits for shared memory by itself.
template <int HALF>
__device__ __forceinline__ void store_rows(const TileArgs& args, u32 staging, const Ending& ending, int warp, int lane) {
  const bool inside = ending.token < args.tokens;
  unsigned char* c = args.c + 2ll * ending.token;
  const u32 from = staging + (warp * 32 + lane / 8) * 128;
#pragma unroll
  for (int first = 0; first < 32; first += 4 * ROWS_AT_ONCE) {
    int row[ROWS_AT_ONCE];
    uint4 v[ROWS_AT_ONCE];
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) {
      row[i] = __shfl_sync(0xffffffff, ending.rows[HALF], first + 4 * i + lane / 8);
      v[i] = load_shared_16(from + (first + 4 * i) * 128 + ((lane % 8) ^ ((4 * i + lane / 8) % 8)) * 16);
    }
#pragma unroll
    for (int i = 0; i < ROWS_AT_ONCE; ++i) store_16_of_row(c, row[i], static_cast<int>(args.c_row_bytes), v[i], inside);
  }
}

// What is staged of half HALF, on its way to C.
template <int HALF>
__device__ __forceinline__ void store_half(const TileArgs& args, const TensorMap& map, u32 staging, const Ending& ending,
                                           int warp, int lane) {
  if (ending.action == PART) return;
  const int first = __shfl_sync(0xffffffff, ending.rows[HALF], 0);
  if (!__all_sync(0xffffffff, first >= 0 && ending.rows[HALF] == first + lane)) {
    store_rows<HALF>(args, staging, ending, warp, lane);
    return;
  }
  if (lane == 0 && ending.token < args.tokens) store_box(&map, ending.token, first, staging + warp * 4096);
  bulk_stores_commit();
}

template <int QUADS>
__device__ __forceinline__ void hand_over(float4* to, const float (&sums)[4 * QUADS], u32* counter, int lane) {
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    to[q * 32] = make_float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]);
  }
  __syncwarp();
  if (lane == 0) signal_add(counter);
}

// Adds QUADS groups of four sums. All loads are on their way before the first is added.
template <int QUADS>
__device__ __forceinline__ void add_quads(float* sums, const float4* from) {
  float4 other[QUADS];
#pragma unroll
  for (int q = 0; q < QUADS; ++q) other[q] = load_past_l1(from + q * 32);
#pragma unroll
  for (int q = 0; q < QUADS; ++q) {
    sums[4 * q] += other[q].x;
    sums[4 * q + 1] += other[q].y;
    sums[4 * q + 2] += other[q].z;
    sums[4 * q + 3] += other[q].w;
  }
}

// Adds the other parts, LOADS_AT_ONCE at a time: all at once would need more registers than there are.
template <int QUADS>
__device__ __forceinline__ void take_over(const float4* from, float (&sums)[4 * QUADS], int parts, u32* counter,
                                          int lane) {
  static_assert(QUADS % LOADS_AT_ONCE == 0);
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
      add_quads<LOADS_AT_ONCE>(sums + 4 * q, from + q * 32);
    }
    from += CONSUMER_WARPS * PART_QUADS * 32;
  }
}

// Hand the sums of half HALF over, or complete and stage them; nobody needs the registers afterwards.
template <int HALF>
__device__ __forceinline__ void settle(const TileArgs& args, Half& sums, const Ending& ending, u32 staging, int group,
                                       int warp, int lane) {
  constexpr int QUADS = HALF_SUMS / 4;
  if (ending.action != WHOLE) {
    const int4 split = load_early(args.splits + ending.place);
    const int warp_of_block = group * 4 + warp;
    const i64 slot_warp = static_cast<i64>(split.x) * CONSUMER_WARPS + warp_of_block;
    float4* place = args.partials + (slot_warp * PART_QUADS + HALF * QUADS) * 32 + lane;
    u32* counter = args.counters + (split.z * 2 + HALF) * CONSUMER_WARPS + warp_of_block;
    if (ending.action == PART) {
      hand_over<QUADS>(place, sums, counter, lane);
      return;
    }
    take_over<QUADS>(place, sums, split.y, counter, lane);
  }
  bulk_stores_read();
  warpgroup_sync(group + 1);  // what was staged before has been stored
  stage_rows<HALF>(staging, sums, ending, warp, lane);
  fence_async_proxy();
  warpgroup_sync(group + 1);
}
