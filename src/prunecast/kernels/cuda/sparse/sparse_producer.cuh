// The producer warpgroup: packed weights by one bulk copy a stage, rows of B by cp.async, 16 bytes a thread.
//
// Contract: thread t fetches chunk t mod 8 of every 64-token block of rows t/8 + 16 q, q = 0 to 3. Columns of -1
// and tokens beyond the row leave zeros, since every step multiplies all of its 64 columns. Indices are loaded one stage ahead, the next item one item ahead.
#pragma once
#include "sparse_args.cuh"
#include "sparse_ring.cuh"

struct Gather {
  const unsigned char* from;  // B at this thread's token chunk of the item
  i64 row_bytes;
  int tokens_left;            // from this thread's chunk to the end of the row

  __device__ __forceinline__ void row(u32 to, int column) const {
    if (column >= 0 && tokens_left > BLOCK_N - 64) {
      const unsigned char* source = from + column * row_bytes;
#pragma unroll
      for (int block = 0; block < BLOCK_N / 64; ++block) {
        copy_16(to + block * TOKEN_BLOCK_BYTES, source + block * 128);
      }
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

__device__ __forceinline__ void fetch_stage(const SparseArgs& args, const Gather& gather, const Ring& ring, int stage,
                                            int4 columns, u32 offset) {
  barrier_wait(ring.empty(), ring.parity ^ 1);
  if (threadIdx.x == 0) {
    barrier_arrive_expect(ring.full(), WEIGHT_BYTES);
    copy_bulk(ring.weights(), args.weights + static_cast<i64>(stage) * WEIGHT_BYTES, WEIGHT_BYTES, ring.full());
  }
  const u32 to = ring.tokens() + offset;
  gather.row(to, columns.x);
  gather.row(to + 2048, columns.y);
  gather.row(to + 4096, columns.z);
  gather.row(to + 6144, columns.w);
  barrier_arrive_after_copies(ring.full());
}

__device__ __forceinline__ void produce(const SparseArgs& args, ItemRange range, u32 base) {
  Ring ring(base);
  const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  const u32 offset = row * 128 + ((chunk ^ (row % 8)) * 16);
  int4 item = first_item(args);
  int4 columns = load_early(args.columns + stage_of(args, item, 0) * 16 + row);
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
      fetch_stage(args, gather, ring, stage, columns, offset);
      columns = columns_after;
      ring.advance();
    }
    item = next;
  }
}
