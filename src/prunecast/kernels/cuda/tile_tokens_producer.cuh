// The producer warpgroup of the token form: packed weights by bulk copies, rows of B by cp.async, 16 bytes a thread.
//
// Contract: thread t fetches chunk t mod 8 of both 64-token blocks of rows t/8 + 16 q, q = 0 to 3. Columns of -1
// leave zeros; tokens beyond the row leave what the row ends with, which nobody stores. In a cluster block r copies
// rows 128 r to 128 r + 127 of the weights to both blocks.
//
// What a load brings comes behind the copies that are on their way, and a move waits for it. So indices are loaded
// four stages ahead, each into the variable from which it will be used, and items lie in shared memory. The warps take
// turns with the weights. What a warp does for a stage has to fit into the time of a step, or the tensor cores wait
// however deep the ring is; so there are no branches, and one multiplication for each address.
#pragma once
#include "tile_args.cuh"
#include "tile_tokens_ring.cuh"

constexpr int STAGES_AHEAD = 4;

static_assert(STAGES <= WARPGROUP / 32, "every slot has a warp that copies its weights");

// B at this thread's chunk of both blocks of 64 tokens, where tokens beyond the row are moved to its end.
struct Gather {
  const unsigned char* from[2];
  int row_bytes;

  __device__ __forceinline__ Gather(const TileArgs& args, int token) : row_bytes(static_cast<int>(args.b_row_bytes)) {
#pragma unroll
    for (int block = 0; block < 2; ++block) from[block] = args.b + 2ll * min(token + 64 * block, args.tokens - 8);
  }

  __device__ __forceinline__ void row(u32 to, int column) const {
    copy_16_of_row(to, from[0], column, row_bytes);
    copy_16_of_row(to + TOKEN_BLOCK_BYTES, from[1], column, row_bytes);
  }
};

__device__ __forceinline__ int4 load_columns(const TileArgs& args, int stage, int row) {
  return load_early(args.columns + stage * 16 + row);
}

__device__ __forceinline__ int stage_of(const TileArgs& args, int4 item, int step) {
  return step < real_steps(item) ? item.x + step : args.null_stage;
}

__device__ __forceinline__ void copy_weights(const TileArgs& args, const Ring& ring, int stage) {
  const unsigned char* from = args.weights + static_cast<i64>(stage) * WEIGHT_BYTES;
  barrier_arrive_expect(ring.full(), WEIGHT_BYTES);
#if CLUSTER == 1
  copy_bulk(ring.weights(), from, WEIGHT_BYTES, ring.full());
#else
  const u32 offset = cluster_rank() * (WEIGHT_BYTES / CLUSTER);
  copy_bulk_to(ring.weights() + offset, from + offset, WEIGHT_BYTES / CLUSTER, ring.full(), (1 << CLUSTER) - 1);
#endif
}

// Where the producer is in its block's list.
struct Progress {
  const TileArgs& args;
  Ring ring;
  int place, end;  // of the item at hand, and of the list
  int4 item;
  int step = 0;
  int early;       // stages to come whose weights were copied ahead
  int turn, row, chunk;
  u32 offset;
  Gather gather;

  __device__ __forceinline__ Progress(const TileArgs& tile_args, ItemRange range, u32 base)
      : args(tile_args), ring(base), place(range.begin), end(range.end), gather(tile_args, 0) {
    turn = uniform(threadIdx.x / 32);
    row = threadIdx.x / 8;
    chunk = threadIdx.x % 8;
    offset = row * 128 + ((chunk ^ (row % 8)) * 16);
    item = uniform(first_item(args));
    gather = Gather(args, item.w + 8 * chunk);
  }

  __device__ __forceinline__ void wait_for_list() const { barrier_wait(ring.base + LIST_BARRIER_AT, 0); }

  __device__ __forceinline__ int4 item_at(int at) const {
    return listed_item(args, ring.base, items_of_block(args).begin, at);
  }

  __device__ __forceinline__ bool leads(const Ring& at) const { return threadIdx.x % 32 == 0 && at.slot == turn; }

  // Weights of the first stages, which no other launch writes.
  __device__ __forceinline__ void copy_early() {
    early = min(steps_of(item), STAGES);
    Ring ahead = ring;
#pragma unroll 1
    for (int s = 0; s < early; ++s) {
      if (leads(ahead)) copy_weights(args, ahead, stage_of(args, item, s));
      ahead.advance();
    }
  }

  // Columns of the stage `ahead` steps from here, which may be one of a later item.
  __device__ __forceinline__ int4 columns_after(int ahead) const {
    int at = step + ahead;
    int4 of = item;
#pragma unroll 1
    for (int p = place + 1; at >= steps_of(of) && p < end; ++p) {
      at -= steps_of(of);
      of = item_at(p);
    }
    return load_columns(args, stage_of(args, of, at), row);
  }

  // One stage, whose columns are given and replaced by those of the stage STAGES_AHEAD after it; false after the last.
  __device__ __forceinline__ bool fetch_stage(int4& columns) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (early <= 0 && leads(ring)) copy_weights(args, ring, stage_of(args, item, step));
    early -= 1;
    const u32 to = ring.tokens() + offset;
    gather.row(to, columns.x);
    gather.row(to + 2048, columns.y);
    gather.row(to + 4096, columns.z);
    gather.row(to + 6144, columns.w);
    columns = columns_after(STAGES_AHEAD);
    barrier_arrive_after_copies(ring.full());
    ring.advance();
    step += 1;
    if (step < steps_of(item)) return true;
    place += 1;
    if (place == end) return false;
    item = uniform(item_at(place));
    step = 0;
    gather = Gather(args, item.w + 8 * chunk);
    return true;
  }
};

__device__ __forceinline__ void produce(const TileArgs& args, ItemRange range, u32 base) {
  Progress at(args, range, base);
  int4 columns_0 = at.columns_after(0), columns_1 = at.columns_after(1);  // an item has at least two steps
  at.copy_early();
  at.wait_for_list();
  int4 columns_2 = at.columns_after(2);
  int4 columns_3 = at.columns_after(3);
#if PDL
  wait_for_last_launch();
#endif
  while (true) {
    if (!at.fetch_stage(columns_0)) return;
    if (!at.fetch_stage(columns_1)) return;
    if (!at.fetch_stage(columns_2)) return;
    if (!at.fetch_stage(columns_3)) return;
  }
}
