// The producer warpgroup: packed weights by one bulk copy a stage, rows of B by cp.async, 16 bytes a thread.
//
// Contract: thread t fetches chunk t mod 8 of every 64-token block of rows t/8 + 16 q, q = 0 to 3. Columns of -1
// and tokens beyond the row leave zeros, since every step multiplies all of its 64 columns. Indices are loaded
// three stages ahead: a stage passes in less time than such a load takes. The next item is loaded one item ahead.
#pragma once
#include "sparse_args.cuh"
#include "sparse_ring.cuh"

constexpr int STAGES_AHEAD = 3;

struct Gather {
  const unsigned char* from;  // B at this thread's token chunk of the item
  i64 row_bytes;
  int tokens_left;            // from this thread's chunk to the end of the row

  __device__ __forceinline__ Gather(const SparseArgs& args, int4 item, int chunk)
      : from(args.b + 2ll * min(item.w + 8 * chunk, args.tokens - 8)),
        row_bytes(args.b_row_bytes),
        tokens_left(args.tokens - item.w - 8 * chunk) {}

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

// The stages of a block's items, one after another. The item after the one at hand is already on its way.
struct Walk {
  const SparseArgs& args;
  int4 item, next;
  int place, end;
  int step = 0;

  __device__ __forceinline__ Walk(const SparseArgs& sparse_args, ItemRange range)
      : args(sparse_args), item(first_item(sparse_args)), next(item), place(range.begin), end(range.end) {
    if (place + 1 < end) next = load_early(args.items + place + 1);
  }

  __device__ __forceinline__ bool at_end() const { return place >= end; }
  __device__ __forceinline__ int stage() const { return stage_of(args, item, step); }

  // Whether another item begins; beyond the last one it stays at its stages.
  __device__ __forceinline__ bool advance() {
    step += 1;
    if (step < steps_of(item)) return false;
    step = 0;
    place += 1;
    item = next;
    if (place + 1 < end) next = load_early(args.items + place + 1);
    return true;
  }
};

__device__ __forceinline__ void produce(const SparseArgs& args, ItemRange range, u32 base) {
  Ring ring(base);
  const int row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  const u32 offset = row * 128 + ((chunk ^ (row % 8)) * 16);
  Walk ahead(args, range), now(args, range);
  int4 columns[STAGES_AHEAD];
#pragma unroll
  for (int i = 0; i < STAGES_AHEAD; ++i) {
    columns[i] = load_early(args.columns + ahead.stage() * 16 + row);
    ahead.advance();
  }
  Gather gather(args, now.item, chunk);
#if PDL
  wait_for_last_launch();
#endif
  while (true) {
#pragma unroll
    for (int i = 0; i < STAGES_AHEAD; ++i) {
      fetch_stage(args, gather, ring, now.stage(), columns[i], offset);
      columns[i] = load_early(args.columns + ahead.stage() * 16 + row);
      ahead.advance();
      ring.advance();
      if (now.advance()) {
        if (now.at_end()) return;
        gather = Gather(args, now.item, chunk);
      }
    }
  }
}
