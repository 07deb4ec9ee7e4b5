// The producer warpgroup: packed weights by bulk copies, rows of B by cp.async.
//
// Contract: include after `Gather` of the form, in which q counts the 16-column groups of a stage. In a cluster block r
// copies rows 128 r to 128 r + 127 of the weights to both blocks.
//
// What a load brings comes behind the copies that are on their way, and a move waits for it. So indices are loaded
// four stages ahead, each into the variable from which it will be used, and items lie in shared memory. Every warp
// issues its copies alone: a stage has no branches that depend on columns, and the warps take turns with weights.
#pragma once
#include "tile_args.cuh"
#include "tile_list.cuh"
#include "tile_ring.cuh"
#include "tile_sums.cuh"

constexpr int PRODUCER_WARPS = WARPGROUP / 32;
constexpr int STAGES_AHEAD = 4;

__device__ __forceinline__ int4 load_columns(const TileArgs& args, int stage, int row) {
  return load_early(args.columns + stage * 16 + row);
}

__device__ __forceinline__ int stage_of(const TileArgs& args, int4 item, int step) {
  return step < real_steps(item) ? item.x + step : args.null_stage;
}

__device__ __forceinline__ void fetch_weights(const TileArgs& args, const Ring& ring, int stage) {
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
  int place, end;             // of the item at hand, and of the list
  int4 item;
  int step = 0;
  int early;                  // stages to come whose weights were fetched ahead
  int warp, row, chunk;
  u32 offset;
  Gather gather;

  __device__ __forceinline__ Progress(const TileArgs& tile_args, ItemRange range, u32 base)
      : args(tile_args), ring(base), place(range.begin), end(range.end), gather(tile_args, 0, 0) {
    warp = uniform(threadIdx.x / 32);
    row = threadIdx.x / 8;
    chunk = threadIdx.x % 8;
    offset = row * 128 + ((chunk ^ (row % 8)) * 16);
    item = uniform(first_item(args));
    gather = Gather(args, item.w, chunk);
  }

  __device__ __forceinline__ void wait_for_list() const { barrier_wait(ring.base + LIST_BARRIER_AT, 0); }

  __device__ __forceinline__ int4 item_at(int at) const {
    return listed_item(args, ring.base, items_of_block(args).begin, at);
  }

  __device__ __forceinline__ void begin_item() {
    item = uniform(item_at(place));
    step = 0;
    gather = Gather(args, item.w, chunk);
  }

  // Whether this thread copies the weights of that slot; the warps take turns.
  __device__ __forceinline__ bool leads(const Ring& at) const {
    return threadIdx.x % 32 == 0 && at.slot % PRODUCER_WARPS == warp;
  }

  // Weights of the first stages, which no other launch writes.
  __device__ __forceinline__ void fetch_early() {
    early = min(steps_of(item), STAGES);
    Ring ahead = ring;
#pragma unroll 1
    for (int s = 0; s < early; ++s) {
      if (leads(ahead)) fetch_weights(args, ahead, stage_of(args, item, s));
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
    const int steps = steps_of(item);
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (early <= 0 && leads(ring)) fetch_weights(args, ring, stage_of(args, item, step));
    early -= 1;
    gather.stage(ring.tokens() + offset, columns);
    columns = columns_after(STAGES_AHEAD);
    barrier_arrive_after_copies(ring.full());
    ring.advance();
    step += 1;
    if (step < steps) return true;
    if (is_owner(item)) fetch_sums(args, ring, place);
    place += 1;
    if (place == end) return false;
    begin_item();
    return true;
  }
};

__device__ __forceinline__ void produce(const TileArgs& args, ItemRange range, u32 base) {
  Progress at(args, range, base);
  int4 columns_0 = at.columns_after(0), columns_1 = at.columns_after(1);  // an item has at least two steps
  at.fetch_early();
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
