// The producer warpgroup: packed weights and columns by bulk copies, rows of B by cp.async.
//
// Contract: include after `Args`, `fetch_sums` of the kernel and `Gather` of the form, in which q counts the 16-column
// groups of a stage. In a cluster block r copies rows 128 r to 128 r + 127 of the weights to both blocks.
//
// What a global load brings comes behind the copies that are on their way, and in narrow forms what a warp does for a
// stage takes as long as the stage's multiplications. So the producer loads nothing: items lie in shared memory, and with
// the weights of every stage come the columns of the stage STAGES later. Who finds a slot free may read them there.
#pragma once
#include "tile_list.cuh"
#include "tile_ring.cuh"

#ifndef FP8
#define FP8 0
#endif

constexpr int PRODUCER_WARPS = WARPGROUP / 32;
constexpr int COLUMN_QUADS = COLUMN_BYTES / 16;
constexpr int STAGE_BULK_BYTES = WEIGHT_BYTES + COLUMN_BYTES + FP8 * TOKEN_BYTES;  // what the copy engine brings

static_assert(STAGES * COLUMN_QUADS <= WARPGROUP, "the first columns are loaded at once");

__device__ __forceinline__ int stage_of(const Args& args, int4 item, int step) {
  return step < real_steps(item) ? item.x + step : args.null_stage;
}

// Weights of a stage, and the columns of that which will be the next in its slot.
__device__ __forceinline__ void bring(const Args& args, const Ring& ring, int stage, int stage_after) {
  const unsigned char* from = args.weights + static_cast<i64>(stage) * WEIGHT_BYTES;
  barrier_arrive_expect(ring.full(), STAGE_BULK_BYTES);
#if CLUSTER == 1
  copy_bulk(ring.weights(), from, WEIGHT_BYTES, ring.full());
#else
  const u32 offset = cluster_rank() * (WEIGHT_BYTES / CLUSTER);
  copy_bulk_to(ring.weights() + offset, from + offset, WEIGHT_BYTES / CLUSTER, ring.full(), (1 << CLUSTER) - 1);
#endif
  copy_bulk(ring.columns_after(), args.columns + stage_after * COLUMN_QUADS, COLUMN_BYTES, ring.full());
}

// Where the producer is in its block's list.
struct Progress {
  const Args& args;
  Ring ring;
  int place;      // of the item at hand in the lists
  int4 item;
  int step = 0;
  int early = 0;  // stages to come that were brought ahead
  u32 offset;
  Gather gather;

  __device__ __forceinline__ Progress(const Args& tile_args, u32 base)
      : args(tile_args), ring(base), place(items_of_block(tile_args).begin), gather(tile_args, 0, 0) {
    const int row = threadIdx.x / 8;
    offset = row * 128 + ((threadIdx.x % 8 ^ row % 8) * 16);
    begin(uniform(first_item(args)));
  }

  __device__ __forceinline__ void begin(int4 next) {
    item = next;
    step = 0;
    gather = Gather(args, item.w, threadIdx.x % 8);
  }

  __device__ __forceinline__ void wait_for_list() const { barrier_wait(ring.base + LIST_BARRIER_AT, 0); }

  __device__ __forceinline__ int4 item_at(int at) const {
    return listed_item(args, ring.base, items_of_block(args).begin, at);
  }

  // The stage `ahead` steps from here, which may be one of a later item. The null stage beyond the end of the list and
  // beyond an owner, after whose steps the ring brings sums.
  __device__ __forceinline__ int stage_after(int ahead) const {
    int at = step + ahead;
    int4 of = item;
    const int end = items_of_block(args).end;
#pragma unroll 1
    for (int p = place + 1; at >= steps_of(of); ++p) {
      if (p == end || is_owner(of)) return args.null_stage;
      at -= steps_of(of);
      of = item_at(p);
    }
    return stage_of(args, of, at);
  }

  // Columns of the next STAGES stages, which nothing brings: a quad for each thread.
  __device__ __forceinline__ int4 load_columns() const {
    const int quad = min(static_cast<int>(threadIdx.x), STAGES * COLUMN_QUADS - 1);
    return load_early(args.columns + stage_after(quad / COLUMN_QUADS) * COLUMN_QUADS + quad % COLUMN_QUADS);
  }

  __device__ __forceinline__ void keep_columns(int4 columns) const {
    Ring slot = ring;
    slot.advance(threadIdx.x / COLUMN_QUADS);
    if (threadIdx.x < STAGES * COLUMN_QUADS) store_shared(slot.columns() + threadIdx.x % COLUMN_QUADS * 16, columns);
    warpgroup_sync(PRODUCERS_MEET);
  }

  // Whether this thread starts the bulk copies of that slot; the warps take turns.
  __device__ __forceinline__ bool leads(const Ring& at) const {
    return threadIdx.x % 32 == 0 && static_cast<u32>(at.slot) % PRODUCER_WARPS == threadIdx.x / 32;
  }

  // Of the first stages what no other launch writes.
  __device__ __forceinline__ void bring_early() {
    early = min(steps_of(item), STAGES);
    if (threadIdx.x % 32 != 0) return;
    const int warp = threadIdx.x / 32;
    Ring slot = ring;
    slot.advance(warp);
#pragma unroll 1
    for (int s = warp; s < early; s += PRODUCER_WARPS) {
      bring(args, slot, stage_of(args, item, s), stage_after(s + STAGES));
      slot.advance(PRODUCER_WARPS);
    }
  }

  // One stage; false after the last.
  __device__ __forceinline__ bool fetch_stage() {
    barrier_wait(ring.empty(), ring.parity ^ 1);
#if FP8
    if (leads(ring)) gather.boxes(ring.tokens(), load_shared(ring.columns()), ring.full());
#else
    gather.stage(ring.tokens() + offset, load_shared(ring.columns() + threadIdx.x / 8 * 16));
#endif
    if (early <= 0 && leads(ring)) bring(args, ring, stage_of(args, item, step), stage_after(STAGES));
    early -= 1;
    barrier_arrive_after_copies(ring.full());
    ring.advance();
    step += 1;
    return step < steps_of(item) || next_item();
  }

  __device__ __forceinline__ bool next_item() {
    const bool owner = is_owner(item);
    if (owner) fetch_sums(args, ring, place);
    place += 1;
    if (place == items_of_block(args).end) return false;
    begin(uniform(item_at(place)));
    if (owner) keep_columns(load_columns());
    return true;
  }
};

__device__ __forceinline__ void produce(const Args& args, u32 base) {
  Progress at(args, base);
  if (steps_of(at.item) < 2 * STAGES) at.wait_for_list();  // the stages ahead are those of later items
  const int4 columns = at.load_columns();
  at.bring_early();
  at.keep_columns(columns);
  at.wait_for_list();
#if PDL
  wait_for_last_launch();
#endif
#pragma unroll 1
  while (at.fetch_stage()) {
  }
}
