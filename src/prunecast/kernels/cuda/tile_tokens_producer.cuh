// The producer warpgroup of the token form: packed weights by bulk copies, rows of B by cp.async, 16 bytes a thread.
//
// Contract: thread t fetches chunk t mod 8 of both 64-token blocks of rows t/8 + 16 q, q = 0 to 3. Columns of -1
// leave zeros; tokens beyond the row leave what the row ends with, which nobody stores. Indices are loaded one
// stage ahead, the next item one item ahead. In a cluster block r copies rows 128 r to 128 r + 127 of the weights
// to both blocks.
//
// The warps take turns with the weights. What a warp does for a stage has to fit into the time of a step, or the
// tensor cores wait however deep the ring is; so there are no branches, and one multiplication for each address.
#pragma once
#include "tile_args.cuh"
#include "tile_tokens_ring.cuh"

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

__device__ __forceinline__ void fetch_stage(const TileArgs& args, const Gather& gather, const Ring& ring, int stage,
                                            int4 columns, u32 offset, bool with_weights) {
  barrier_wait(ring.empty(), ring.parity ^ 1);
  if (with_weights) copy_weights(args, ring, stage);
  const u32 to = ring.tokens() + offset;
  gather.row(to, columns.x);
  gather.row(to + 2048, columns.y);
  gather.row(to + 4096, columns.z);
  gather.row(to + 6144, columns.w);
  barrier_arrive_after_copies(ring.full());
}

__device__ __forceinline__ void produce(const TileArgs& args, ItemRange range, u32 base) {
  Ring ring(base);
  const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  const bool leads = threadIdx.x % 32 == 0;
  const int turn = threadIdx.x / 32;
  const u32 offset = row * 128 + ((chunk ^ (row % 8)) * 16);
  int4 item = first_item(args);
  int4 columns = load_early(args.columns + item.x * 16 + row);
  if (real_steps(item) == 0) columns = make_int4(-1, -1, -1, -1);
  bool first = true;
  for (int i = range.begin; i < range.end; ++i) {
    const int4 next = i + 1 < range.end ? load_early(args.items + i + 1) : item;
    const int steps = steps_of(item);
    const Gather gather(args, item.w + 8 * chunk);
    for (int step = 0; step < steps; ++step) {
      const int stage = stage_of(args, item, step);
      const int after = step + 1 < steps ? stage_of(args, item, step + 1) : stage_of(args, next, 0);
      const int4 columns_after = load_early(args.columns + after * 16 + row);
#if PDL
      if (first) wait_for_last_launch();
#endif
      first = false;
      fetch_stage(args, gather, ring, stage, columns, offset, leads && turn == ring.slot);
      columns = columns_after;
      ring.advance();
    }
    item = next;
  }
}
