// The tile kernel for few tokens, sm_80 and later: C rows of a tile = packed weights x gathered rows of B.
//
// Contract: launch THREADS threads and SHARED_BYTES of dynamic shared memory a block, one block for each entry of
// `ranges`: at most BLOCK_M rows and BLOCK_N tokens over all kept columns. Its warps take the k16s in turn, each
// through a ring of its own, and meet once, to add their sums in order. No block waits for another. B and C are
// row-major; tokens may be any number. Sums are fp32. C is written exactly once at every row of the row lists
// and nowhere else.
//
// Defines: BLOCK_M, BLOCK_N, WARPS, DEPTH, UNIT, PDL (small_shape.cuh); BF16, BIAS, ACTIVATION (activation.cuh);
// PLAN_THREADS, PLAN_SHARED_BYTES: what the plan says, checked.
#include "small_end.cuh"
#include "small_multiply.cuh"

__device__ __forceinline__ Lane lane_of(const SmallArgs& args, int2 range, int2 place, u32 shared) {
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  Lane me;
  me.lane = threadIdx.x % 32;
  me.ring = shared + warp * WARP_BYTES;
  me.columns = me.ring + DEPTH * SLOT_BYTES;
  const i64 first = static_cast<i64>(range.x) + warp;
  me.weights = args.weights + first * (FRAGMENTS * 32) + me.lane;
  me.column_list = args.columns + first * 4;
  me.count = range.y > warp ? (range.y - warp + WARPS - 1) / WARPS : 0;
  me.token = place.y + me.lane / 4 * TOKENS;
  me.b = args.b + 2ll * me.token;
  me.first_element = args.b_shift + me.token;
  return me;
}

__device__ __forceinline__ void read_clock(u64* clock) {
  clock[0] = clock64();
  clock[1] = global_nanoseconds();
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) small_n(const __grid_constant__ SmallArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
#if PDL
  let_next_launch_start();
#endif
  const u32 base = shared_address(shared);
  const int block = blockIdx.x;
#if GROUPED
  // Made by a launch, as items of the tile kernel (`tile_args.cuh`): one for each block that the experts may need
  const int2 place = load_past_l1(args.places + block), range = load_past_l1(args.ranges + block);
  if (place.x < 0) return;
#else
  const int2 place = load_early(args.places + block);
  const int2 range = args.blocks_in_args ? args.first[block] : load_early(args.ranges + block);
#endif
  const Lane me = lane_of(args, range, place, base);
  start(args, me);
  const bool timed = args.clock != nullptr && block == 0 && threadIdx.x == 0;
  if (timed) read_clock(args.clock);
  float sums[FRAGMENTS][TOKENS][4] = {};
  u32 slot = me.ring;
#pragma unroll 1
  for (int i = 0; i < me.count; ++i) {
    wait_copies<DEPTH - 1>();
    __syncwarp();
    multiply(slot, me.lane, sums);
    refill(args, me, slot, i);
    slot += SLOT_BYTES;
    if (slot == me.columns) slot = me.ring;
  }
  wait_copies<0>();
  __syncwarp();
  leave_sums(me.ring, me.lane, sums);
  __syncthreads();
#pragma unroll 1
  for (int task = threadIdx.x; task < FRAGMENTS * 64; task += THREADS) add_and_store(args, base, place, task);
  if (timed) read_clock(args.clock + 2);
}
