// Kernels around the grouped products of experts: they assign tokens to columns of B, write the work items of the
// products, apply gated units, and add the outputs of each token's experts. None of them needs the host.
//
// Contract: every launch has THREADS threads a block, and 12 * THREADS bytes of dynamic shared memory. A "place" is one
// expert of one token; the places of a token are consecutive. The columns of an expert are consecutive and padded to
// whole blocks of `block_n`. Elements have 2 bytes, fp16 or BF16; rows begin at multiples of 16 bytes. ACTIVATION as in
// `activation.cuh`; SHARES_FP32 0 or 1: the format of the weights of a token's experts.
#include "activation.cuh"
#include "ptx.cuh"

#ifndef THREADS
#define THREADS 1024
#endif
#ifndef SHARES_FP32
#define SHARES_FP32 0
#endif

using i64 = long long;
constexpr int BATCH = 8;  // expert numbers that a thread loads at once

struct RouteArgs {
  const i64* chosen;  // (places,): expert of each place; an invalid expert gets no column
  int* column;        // (places,): column of B, or -1
  int* source;        // [column]: token, or -1 for padding; not written after the last expert's columns
  int* first;         // (experts + 1,): first column of each expert, then the number of columns
  int* counts;        // (blocks, experts): places of each expert in the share of a block; null for one block
  int places;
  int per_token;      // places of a token
  int experts;        // at most THREADS
  int block_n;
};

struct ProductItems {
  const int* first;       // as `RouteArgs`
  const int* first_tile;  // (experts + 1,): first tile of each expert, then their number
  const int2* heads;      // [tile]: x and y of its items
  int4* items;            // [list][room]: x, y, tile, first column
  int2* ranges;           // [item]: x, y; used if each item is a separate block
  int2* places;           // [item]: tile, first column; a negative tile for the blocks after the last item
  int* count;             // of items
  int experts;
  int block_n;
  int together;           // token ranges per group; the items of all tiles of an expert precede those of the next group
  int lists;              // 0: each item is a separate block
  int room;               // capacity of a list in items
  int most;               // number of blocks if each item is a separate block
};

struct ListArgs {
  ProductItems of[2];  // the products that read the same columns
  int second;          // first block of the second one
};

struct GateArgs {
  unsigned char* c;    // (2 * rows, columns): of the gate, then of up; the unit is written in place of the gate
  const int* columns;  // number of used columns
  i64 row_bytes;
  int rows;            // of a unit
  int across;          // blocks along the columns
  int lanes;           // threads of a block along the columns, 8 each
};

struct SumArgs {
  const unsigned char* y;       // (columns, features)
  const int* column;            // as `RouteArgs`
  const unsigned char* shares;  // (tokens, per_token)
  unsigned char* out;           // (tokens, features)
  i64 y_row_bytes;
  i64 out_row_bytes;
  int per_token;
  int features;                 // a multiple of 8
};

// Inclusive prefix sum over the threads of the block.
__device__ inline void add_up(int* sums) {
  const int at = threadIdx.x;
#pragma unroll 1
  for (int step = 1; step < THREADS; step *= 2) {
    const int before = at >= step ? sums[at - step] : 0;
    __syncthreads();
    sums[at] += before;
    __syncthreads();
  }
}

// Loads the experts of BATCH places from `first` on, THREADS apart; -1 for invalid experts and from place `end` on.
__device__ inline void load_experts(const RouteArgs& args, int first, int end, int (&expert)[BATCH]) {
#pragma unroll
  for (int i = 0; i < BATCH; ++i) {
    const int place = first + i * THREADS;
    const i64 chosen = place < end ? args.chosen[place] : -1;
    expert[i] = chosen >= 0 && chosen < args.experts ? static_cast<int>(chosen) : -1;
  }
}

// A block's share of the places.
struct Share {
  int begin, end;
};

__device__ inline Share share_of_block(const RouteArgs& args) {
  const int blocks = gridDim.x, block = blockIdx.x, size = (args.places + blocks - 1) / blocks;
  return {min(block * size, args.places), min((block + 1) * size, args.places)};
}

// Adds the places of a share to (experts,) counters, which must be 0 before.
__device__ inline void count_share(const RouteArgs& args, Share share, int* counts) {
  int expert[BATCH];
#pragma unroll 1
  for (int place = share.begin + static_cast<int>(threadIdx.x); place < share.end; place += BATCH * THREADS) {
    load_experts(args, place, share.end, expert);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (expert[i] >= 0) atomicAdd(counts + expert[i], 1);
    }
  }
}

// Runs before `route_tokens` if that has more than one block, with the same number of blocks.
extern "C" __global__ void __launch_bounds__(THREADS) count_tokens(RouteArgs args) {
  extern __shared__ int shared[];
  let_next_launch_start();
  wait_for_last_launch();
  shared[threadIdx.x] = 0;
  __syncthreads();
  count_share(args, share_of_block(args), shared);
  __syncthreads();
  if (threadIdx.x < args.experts) args.counts[blockIdx.x * args.experts + threadIdx.x] = shared[threadIdx.x];
}

// Assigns columns to the places of this block, after those of the same expert in preceding blocks.
extern "C" __global__ void __launch_bounds__(THREADS) route_tokens(RouteArgs args) {
  extern __shared__ int shared[];
  int *next = shared, *ends = shared + THREADS, *loads = shared + 2 * THREADS;
  const int at = threadIdx.x, block = blockIdx.x, blocks = gridDim.x;
  const Share share = share_of_block(args);
  let_next_launch_start();
  wait_for_last_launch();
  int load = 0, before = 0;
  if (args.counts == nullptr) {
    next[at] = 0;
    __syncthreads();
    count_share(args, share, next);
    __syncthreads();
    load = next[at];
  } else if (at < args.experts) {
#pragma unroll 8
    for (int i = 0; i < blocks; ++i) {
      const int own = args.counts[i * args.experts + at];
      load += own;
      before += i < block ? own : 0;
    }
  }
  const int padded = (load + args.block_n - 1) / args.block_n * args.block_n;
  loads[at] = load;
  ends[at] = padded;
  __syncthreads();
  add_up(ends);
  const int begin = ends[at] - padded;
  next[at] = begin + before;
  if (block == 0 && at < args.experts) args.first[at] = begin;
  if (block == 0 && at == args.experts - 1) args.first[args.experts] = ends[at];
  __syncthreads();
  // Mark the padding columns of each expert's last block, one expert per warp
#pragma unroll 1
  for (int expert = block * (THREADS / 32) + at / 32; expert < args.experts; expert += blocks * (THREADS / 32)) {
    const int own = loads[expert], missing = (args.block_n - own % args.block_n) % args.block_n;
    for (int i = at % 32; i < missing; i += 32) args.source[ends[expert] - missing + i] = -1;
  }
  int expert[BATCH];
#pragma unroll 1
  for (int place = share.begin + at; place < share.end; place += BATCH * THREADS) {
    load_experts(args, place, share.end, expert);
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const int own = place + i * THREADS;
      if (own >= share.end) break;
      // The order of an expert's tokens does not change results, because columns are never added to each other
      const int column = expert[i] >= 0 ? atomicAdd(next + expert[i], 1) : -1;
      if (column >= 0) args.source[column] = own / args.per_token;
      args.column[own] = column;
    }
  }
}

// One thread per possible item, in the order of `expert_items`.
extern "C" __global__ void __launch_bounds__(THREADS) list_items(ListArgs both) {
  extern __shared__ int shared[];
  int* ends = shared;
  const int at = threadIdx.x, is_second = blockIdx.x >= both.second;
  const ProductItems& args = both.of[is_second];
  const int block = blockIdx.x - is_second * both.second;
  let_next_launch_start();
  wait_for_last_launch();
  int own = 0;
  if (at < args.experts) {
    own = (args.first_tile[at + 1] - args.first_tile[at]) * ((args.first[at + 1] - args.first[at]) / args.block_n);
  }
  ends[at] = own;
  __syncthreads();
  add_up(ends);
  const int count = ends[THREADS - 1], item = block * THREADS + at;
  if (item == 0) *args.count = count;
  if (item >= count) {
    if (args.lists == 0 && item < args.most) {
      args.ranges[item] = make_int2(0, 0);
      args.places[item] = make_int2(-1, 0);
    }
    return;
  }
  int expert = 0;  // first expert whose items end after this item (binary search)
  for (int last = args.experts - 1; expert < last;) {
    const int middle = (expert + last) / 2;
    if (ends[middle] > item) {
      last = middle;
    } else {
      expert = middle + 1;
    }
  }
  const int first_tile = args.first_tile[expert], tiles = args.first_tile[expert + 1] - first_tile;
  const int first = args.first[expert], all = (args.first[expert + 1] - first) / args.block_n;
  const int inside = expert == 0 ? item : item - ends[expert - 1];
  const int group = inside / (tiles * args.together) * args.together, place = inside - group * tiles;
  const int width = min(args.together, all - group);
  const int tile = first_tile + place / width, column = first + (group + place % width) * args.block_n;
  const int2 head = args.heads[tile];
  if (args.lists == 0) {
    args.ranges[item] = head;
    args.places[item] = make_int2(tile, column);
  } else {
    args.items[static_cast<i64>(item % args.lists) * args.room + item / args.lists] =
        make_int4(head.x, head.y, tile, column);
  }
}

__device__ inline u32 gated_pair(u32 gate, u32 up) {
  return round_both(activate(widened(gate & 0xffffu)) * widened(up & 0xffffu),
                    activate(widened(gate >> 16)) * widened(up >> 16));
}

constexpr int GATE_ROWS = 4;  // of a thread, 16 bytes each

// A block computes 8 * lanes columns; each of its THREADS / lanes groups of threads computes GATE_ROWS rows.
extern "C" __global__ void __launch_bounds__(THREADS) gate_rows(GateArgs args) {
  const int groups = THREADS / args.lanes, group = threadIdx.x / args.lanes;
  const int first_row = (blockIdx.x / args.across * groups + group) * GATE_ROWS;
  const int column = (blockIdx.x % args.across * args.lanes + threadIdx.x % args.lanes) * 8;
  wait_for_last_launch();
  let_next_launch_start();  // the next launch may then read the items, see `tile_args.cuh`
  if (column >= *args.columns || group >= groups) return;
  uint4 gate[GATE_ROWS], up[GATE_ROWS];
#pragma unroll
  for (int i = 0; i < GATE_ROWS; ++i) {
    const int row = min(first_row + i, args.rows - 1);
    const unsigned char* from = args.c + row * args.row_bytes + 2ll * column;
    gate[i] = *reinterpret_cast<const uint4*>(from);
    up[i] = *reinterpret_cast<const uint4*>(from + args.rows * args.row_bytes);
  }
#pragma unroll
  for (int i = 0; i < GATE_ROWS; ++i) {
    if (first_row + i >= args.rows) break;
    *reinterpret_cast<uint4*>(args.c + (first_row + i) * args.row_bytes + 2ll * column) =
        make_uint4(gated_pair(gate[i].x, up[i].x), gated_pair(gate[i].y, up[i].y), gated_pair(gate[i].z, up[i].z),
                   gated_pair(gate[i].w, up[i].w));
  }
}

__device__ inline void add_pair(float* sums, float share, u32 both) {
  sums[0] += share * widened(both & 0xffffu);
  sums[1] += share * widened(both >> 16);
}

__device__ inline float share_of(const SumArgs& args, i64 place) {
#if SHARES_FP32
  return reinterpret_cast<const float*>(args.shares)[place];
#else
  return widened(reinterpret_cast<const unsigned short*>(args.shares)[place]);
#endif
}

// A block for each token, and for each 8 * THREADS of its features.
extern "C" __global__ void __launch_bounds__(THREADS) sum_experts(SumArgs args) {
  const int across = (args.features + 8 * THREADS - 1) / (8 * THREADS);
  const int token = blockIdx.x / across, feature = (blockIdx.x % across * THREADS + threadIdx.x) * 8;
  let_next_launch_start();
  wait_for_last_launch();
  if (feature >= args.features) return;
  float sums[8] = {};
#pragma unroll 4
  for (int i = 0; i < args.per_token; ++i) {
    const i64 place = static_cast<i64>(token) * args.per_token + i;
    const int column = args.column[place];
    uint4 y = make_uint4(0, 0, 0, 0);  // values that were never written may be NaN
    if (column >= 0) y = *reinterpret_cast<const uint4*>(args.y + column * args.y_row_bytes + 2ll * feature);
    const float share = column >= 0 ? share_of(args, place) : 0.0f;
    add_pair(sums, share, y.x);
    add_pair(sums + 2, share, y.y);
    add_pair(sums + 4, share, y.z);
    add_pair(sums + 6, share, y.w);
  }
  *reinterpret_cast<uint4*>(args.out + token * args.out_row_bytes + 2ll * feature) =
      make_uint4(round_both(sums[0], sums[1]), round_both(sums[2], sums[3]), round_both(sums[4], sums[5]),
                 round_both(sums[6], sums[7]));
}
