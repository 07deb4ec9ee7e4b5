// The producer warpgroup of the token form: packed weights by bulk copies, rows of B by cp.async, 16 bytes a thread.
//
// Contract: thread t fetches chunk t mod 8 of both 64-token blocks of rows t/8 + 16 q, q = 0 to 3, so that q
// counts the 16-column groups of a stage and the last stage copies only those that are multiplied. Columns of
// -1 and tokens beyond the row leave zeros. Indices are loaded one stage ahead, the next item one item ahead.
// In a cluster block r copies rows 128 r to 128 r + 127 of the weights to both blocks.
#pragma once
#include "tile_args.cuh"
#include "tile_tokens_ring.cuh"

struct Gather {
  const unsigned char* from;  // B at this thread's token chunk of the item
  i64 row_bytes;
  int tokens_left;            // from this thread's chunk to the end of the row

  __device__ __forceinline__ void row(u32 to, int column) const {
    if (column >= 0 && tokens_left > BLOCK_N - 64) {
      const unsigned char* source = from + column * row_bytes;
      copy_16(to, source);
      copy_16(to + TOKEN_BLOCK_BYTES, source + 128);
    } else {
      edge_row(to, column);
    }
  }

  __device__ __forceinline__ void edge_row(u32 to, int column) const {
#pragma unroll
    for (int block = 0; block < BLOCK_N / 64; ++block) {
      const bool inside = column >= 0 && tokens_left > block * 64;
      copy_16(to + block * TOKEN_BLOCK_BYTES, inside ? from + column * row_bytes + block * 128 : from,
              inside ? 16 : 0);
    }
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
                                            int4 columns, int k16, u32 offset) {
  barrier_wait(ring.empty(), ring.parity ^ 1);
  if (threadIdx.x == 0) copy_weights(args, ring, stage);
  const u32 to = ring.tokens() + offset;
  gather.row(to, columns.x);
  if (k16 > 1) gather.row(to + 2048, columns.y);
  if (k16 > 2) gather.row(to + 4096, columns.z);
  if (k16 > 3) gather.row(to + 6144, columns.w);
  barrier_arrive_after_copies(ring.full());
}

__device__ __forceinline__ void produce(const TileArgs& args, ItemRange range, u32 base) {
  Ring ring(base);
  const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  const u32 offset = row * 128 + ((chunk ^ (row % 8)) * 16);
  int4 item = first_item(args);
  int4 columns = load_early(args.columns + item.x * 16 + row);
  if (real_steps(item) == 0) columns = make_int4(-1, -1, -1, -1);
  bool first = true;
  for (int i = range.begin; i < range.end; ++i) {
    const int4 next = i + 1 < range.end ? load_early(args.items + i + 1) : item;
    const int token = item.w + 8 * chunk, steps = steps_of(item);
    const Gather gather{args.b + 2ll * min(token, args.tokens - 8), args.b_row_bytes, args.tokens - token};
    for (int step = 0; step < steps; ++step) {
      const int stage = stage_of(args, item, step);
      const int after = step + 1 < steps ? stage_of(args, item, step + 1) : stage_of(args, next, 0);
      const int4 columns_after = load_early(args.columns + after * 16 + row);
#if PDL
      if (first) wait_for_last_launch();
#endif
      first = false;
      fetch_stage(args, gather, ring, stage, columns, step + 1 < steps ? 4 : last_k16(item), offset);
      columns = columns_after;
      ring.advance();
    }
    item = next;
  }
}
