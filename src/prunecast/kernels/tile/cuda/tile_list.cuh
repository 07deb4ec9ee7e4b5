// The head of the block's list of items in shared memory, where one bulk copy brings it: a global load of the producer
// would wait behind all its gathers.
//
// Contract: include after `Args` of the kernel and the sizes of the form, of which BARRIERS_AT is used; 896 bytes from
// BARRIERS_AT + 128 on are the list's.
#pragma once
#include "ptx.cuh"

constexpr int LIST_BARRIER_AT = BARRIERS_AT + 128;
constexpr int LIST_AT = BARRIERS_AT + 256;
constexpr int ITEMS_LISTED = 48;

__device__ __forceinline__ void start_list(u32 base, const int4* items, int count) {
  const u32 bytes = min(count, ITEMS_LISTED) * 16;
  barrier_init(base + LIST_BARRIER_AT, 1);
  barrier_init_fence();
  barrier_arrive_expect(base + LIST_BARRIER_AT, bytes);
  copy_bulk(base + LIST_AT, items, bytes, base + LIST_BARRIER_AT);
}

// Item `at` of the lists; those of the block begin at `begin`.
__device__ __forceinline__ int4 listed_item(const Args& args, u32 base, int begin, int at) {
  return at - begin < ITEMS_LISTED ? load_shared(base + LIST_AT + 16 * (at - begin)) : load_item(args.items + at);
}
