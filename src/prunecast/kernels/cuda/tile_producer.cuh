// The producer warpgroup: packed weights by one bulk copy a stage, rows of B by cp.async, 16 bytes a thread.
//
// Contract: thread t fetches chunk t mod 8 of every 64-token block of rows t/8 + 16 q, q = 0 to 3, so that q
// counts the 16-column groups of a stage. Columns of -1 and tokens beyond the row leave zeros and read nothing.
//
// What a load brings comes behind the copies that are on their way, and a move waits for it. So indices are loaded
// four stages ahead, each into the variable from which it will be used, and items lie in shared memory. Every warp
// issues its copies alone: a stage has no branches that depend on columns, and the warps take turns with weights.
#pragma once
#include "tile_args.cuh"
#include "tile_ring.cuh"

constexpr int PRODUCER_WARPS = WARPGROUP / 32;
constexpr int STAGES_AHEAD = 4;

struct Gather {
  const unsigned char* from;  // B at this thread's token chunk of the item
  u32 row_bytes;
  int tokens_left;            // from this thread's chunk to the end of the row

  // Four rows, 16 apart, of one 64-token block
  __device__ __forceinline__ void block(u32 to, int4 columns, int block) const {
    copy_row(to, columns.x, block);
    copy_row(to + 2048, columns.y, block);
    copy_row(to + 4096, columns.z, block);
    copy_row(to + 6144, columns.w, block);
  }

  __device__ __forceinline__ void copy_row(u32 to, int column, int block) const {
    const unsigned char* row = from + static_cast<u64>(static_cast<u32>(column)) * row_bytes;
    copy_16_unless(to + block * TOKEN_BLOCK_BYTES, row + block * 128, column < 0);
  }

  __device__ __forceinline__ void whole(u32 to, int4 columns) const {
#pragma unroll
    for (int b = 0; b < BLOCK_N / 64; ++b) block(to, columns, b);
  }

  __device__ __forceinline__ void edge(u32 to, int4 columns) const {
#pragma unroll 1
    for (int b = 0; b < BLOCK_N / 64; ++b) {
      const int beyond = tokens_left > b * 64 ? 0 : -1;
      block(to, make_int4(columns.x | beyond, columns.y | beyond, columns.z | beyond, columns.w | beyond), b);
    }
  }
};

__device__ __forceinline__ int4 load_columns(const TileArgs& args, int stage, int row) {
  return load_early(args.columns + stage * 16 + row);
}

__device__ __forceinline__ int stage_of(const TileArgs& args, int4 item, int step) {
  return step < real_steps(item) ? item.x + step : args.null_stage;
}

__device__ __forceinline__ void fetch_weights(const TileArgs& args, const Ring& ring, int stage) {
  const unsigned char* from = args.weights + static_cast<i64>(stage) * WEIGHT_BYTES;
  barrier_arrive_expect(ring.full(), WEIGHT_BYTES);
  copy_bulk(ring.weights(), from, WEIGHT_BYTES, ring.full());
}

// The sums of the other parts of a split tile, after the steps of its owner.
__device__ __forceinline__ void fetch_sums(const TileArgs& args, Ring& ring, int place) {
  const int4 split = load_early(args.splits + place);
  if (threadIdx.x == 0) {
    u32* counter = args.counters + split.z * COUNTERS_PER_GROUP;
    Patience patience;
    while (load_acquire(counter) != static_cast<u32>(split.y * CONSUMER_WARPS)) patience.spend();
    *counter = 0;
    fence_async_proxy_global();
  }
  const unsigned char* from =
      reinterpret_cast<const unsigned char*>(args.partials) + static_cast<i64>(split.x) * SUM_STAGES * SUM_STAGE_BYTES;
  const int stages = uniform(split.y) * SUM_STAGES;
#pragma unroll 1
  for (int stage = 0; stage < stages; ++stage) {
    barrier_wait(ring.empty(), ring.parity ^ 1);
    if (threadIdx.x == 0) {
      barrier_arrive_expect(ring.full(), SUM_STAGE_BYTES);
      copy_bulk(ring.weights(), from + static_cast<i64>(stage) * SUM_STAGE_BYTES, SUM_STAGE_BYTES, ring.full());
    }
    barrier_arrive(ring.full());
    ring.advance();
  }
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
      : args(tile_args), ring(base), place(range.begin), end(range.end) {
    warp = uniform(threadIdx.x / 32);
    row = threadIdx.x / 8;
    chunk = threadIdx.x % 8;
    offset = row * 128 + ((chunk ^ (row % 8)) * 16);
    item = uniform(first_item(args));
    begin_rows();
  }

  __device__ __forceinline__ void wait_for_list() const { barrier_wait(ring.base + LIST_BARRIER_AT, 0); }

  __device__ __forceinline__ int4 item_at(int at) const {
    return listed_item(args, ring.base, items_of_block(args).begin, at);
  }

  __device__ __forceinline__ void begin_item() {
    item = uniform(item_at(place));
    step = 0;
    begin_rows();
  }

  __device__ __forceinline__ void begin_rows() {
    const int token = item.w + 8 * chunk;
    gather = {args.b + 2ll * min(token, args.tokens - 8), static_cast<u32>(args.b_row_bytes), args.tokens - token};
  }

  // Weights of the first stages, which no other launch writes.
  __device__ __forceinline__ void fetch_early() {
    early = min(steps_of(item), STAGES);
    Ring ahead = ring;
#pragma unroll 1
    for (int s = 0; s < early; ++s) {
      if (threadIdx.x % 32 == 0 && s % PRODUCER_WARPS == warp) fetch_weights(args, ahead, stage_of(args, item, s));
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
    if (early <= 0 && threadIdx.x % 32 == 0 && ring.slot % PRODUCER_WARPS == warp) {
      fetch_weights(args, ring, stage_of(args, item, step));
    }
    early -= 1;
    if (item.w + BLOCK_N <= args.tokens) {
      gather.whole(ring.tokens() + offset, columns);
    } else {
      gather.edge(ring.tokens() + offset, columns);
    }
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
