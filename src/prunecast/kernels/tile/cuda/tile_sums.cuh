// The sums of split tiles: from a part to the workspace, and through the ring of the owner to its consumers.
//
// Contract: a tile's parts have the same registers, and leave them in the order in which the ring brings them back,
// SUM_STAGES stages each. One counter a tile counts the warps of all parts that have written. The owner is part 0;
// it adds the others in their order, so that a result is the same in every run, and sets the counter back to zero.
#pragma once
#include "tile_args.cuh"
#include "tile_ring.cuh"

constexpr int SUM_STAGES = 8;
constexpr int SUM_STAGE_QUADS = PART_SUMS / 4 / SUM_STAGES;  // float4 of a thread
constexpr int SUM_STAGE_BYTES = CONSUMER_WARPS * 32 * 16 * SUM_STAGE_QUADS;

static_assert(SUM_STAGE_BYTES <= STAGE_BYTES, "sums of a part must fit into a stage");

// Where the sums of a part lie: [slot][stage][warp][quad][lane].
__device__ __forceinline__ float4* place_of_sums(const TileArgs& args, int slot, int stage, int warp) {
  const i64 block = (static_cast<i64>(slot) * SUM_STAGES + stage) * CONSUMER_WARPS + warp;
  return args.partials + block * SUM_STAGE_QUADS * 32;
}

// The sums of a part to the workspace, and a signal to the owner.
__device__ __forceinline__ void hand_over(const TileArgs& args, const float (&sums)[PART_SUMS], int4 split, int warp,
                                          int lane) {
#pragma unroll
  for (int stage = 0; stage < SUM_STAGES; ++stage) {
    float4* to = place_of_sums(args, split.x, stage, warp) + lane;
#pragma unroll
    for (int quad = 0; quad < SUM_STAGE_QUADS; ++quad) {
      const float* s = sums + 4 * (stage * SUM_STAGE_QUADS + quad);
      to[quad * 32] = make_float4(s[0], s[1], s[2], s[3]);
    }
  }
  __syncwarp();
  if (lane == 0) signal_add(args.counters + split.z * COUNTERS_PER_GROUP);
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

// Adds one stage of another part's sums, which the ring has brought.
template <int STAGE>
__device__ __forceinline__ void add_stage(float (&sums)[PART_SUMS], u32 stage, int warp, int lane) {
  const u32 from = stage + (warp * SUM_STAGE_QUADS * 32 + lane) * 16;
#pragma unroll
  for (int quad = 0; quad < SUM_STAGE_QUADS; ++quad) {
    float4 v;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                 : "r"(from + quad * 512)
                 : "memory");
    float* s = sums + 4 * (STAGE * SUM_STAGE_QUADS + quad);
    s[0] += v.x;
    s[1] += v.y;
    s[2] += v.z;
    s[3] += v.w;
  }
}
