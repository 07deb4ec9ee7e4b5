// Tiles of weights in fp8 (e4m3) times tokens, of which a tile keeps columns in runs of RUN bytes: the experiment of
// docs/decisions/0020-fp8.md, beside the tile kernel in fp16.
//
// Contract: 384 threads, SHARED_BYTES of dynamic shared memory, any number of blocks. Tokens are (N, K), both operands
// K-major. A stage has 128 columns: a run of tokens is one box of the copy engine, as wide as its swizzle, and weights
// lie in memory as in a stage. One operand has 64 rows a warpgroup, the other 256: with WEIGHT_ROWS 256 tokens are the
// 64 rows and C is (N, M), with 128 weights are and C is (M, N); bf16. Sums are those of the tensor cores: fp32 whose
// last ten bits are lost.
#include "ptx.cuh"
#include "wgmma.cuh"

constexpr int WARPGROUP = 128, COLUMNS = 128, RUNS = COLUMNS / RUN;
constexpr int TOKENS = WEIGHT_ROWS == 256 ? 128 : 256;
constexpr int WEIGHT_BYTES = WEIGHT_ROWS * COLUMNS, TOKEN_BYTES = TOKENS * COLUMNS;
constexpr int STAGE_BYTES = WEIGHT_BYTES + TOKEN_BYTES;
constexpr int BARRIERS_AT = STAGES * STAGE_BYTES;
constexpr u64 SWIZZLE = RUN == 16 ? 0 : RUN == 32 ? 3 : RUN == 64 ? 2 : 1;

struct Args {
  const unsigned char* weights;  // [stage][run][row][RUN], 16-byte chunks swizzled
  const int* columns;            // [stage][run]: first column
  const int* stages;             // tile t has stages[t] to stages[t + 1]
  unsigned char* c;
  i64 c_row_bytes;
  int tiles, token_blocks;
  float scale;
};

struct Slot {
  u32 base;
  int number = 0;
  u32 parity = 0;
  __device__ __forceinline__ u32 weights() const { return base + number * STAGE_BYTES; }
  __device__ __forceinline__ u32 tokens() const { return weights() + WEIGHT_BYTES; }
  __device__ __forceinline__ u32 full() const { return base + BARRIERS_AT + 8 * number; }
  __device__ __forceinline__ u32 empty() const { return full() + 8 * STAGES; }
  __device__ __forceinline__ void advance() {
    if (++number == STAGES) number = 0, parity ^= 1;
  }
};

__device__ __forceinline__ void copy_box(u32 to, const TensorMap* map, int x, int y, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void bring(const Args& args, const TensorMap* map, const Slot& at, int stage, int token) {
  barrier_wait(at.empty(), at.parity ^ 1);
  barrier_arrive_expect(at.full(), STAGE_BYTES);
  const unsigned char* from = args.weights + static_cast<i64>(stage) * WEIGHT_BYTES;
  copy_bulk(at.weights(), from, WEIGHT_BYTES, at.full());
#pragma unroll
  for (int run = 0; run < RUNS; ++run) {
    const int column = load_early(args.columns + stage * RUNS + run);
    copy_box(at.tokens() + run * TOKENS * RUN, map, column, token, at.full());
  }
}

// Of runs of 16 two are multiplied at once, which lie as far apart as a run has rows.
__device__ __forceinline__ u64 descriptor(u32 address, int rows) {
  const u64 next_run = RUN == 16 ? rows : 1;
  return SWIZZLE << 62 | static_cast<u64>(8 * RUN / 16) << 32 | next_run << 16 | static_cast<u64>(address >> 4);
}

__device__ __forceinline__ void multiply_fp8(float (&sums)[128], u64 x, u64 y, u32 keep) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {" R128 "}, %128, %129, p, 1, 1;\n}\n"
      : OUT32(sums, 0), OUT32(sums, 32), OUT32(sums, 64), OUT32(sums, 96)
      : IN3(x, y, keep));
}

__device__ __forceinline__ void multiply_stage(float (&sums)[128], const Slot& at, int group, u32 keep) {
  const u32 x = (WEIGHT_ROWS == 256 ? at.tokens() : at.weights()) + group * 64 * RUN;
  const u32 y = WEIGHT_ROWS == 256 ? at.weights() : at.tokens();
  multiply_fence();
#pragma unroll
  for (int k = 0; k < COLUMNS / 32; ++k) {
    const int run = k * 32 / RUN, inside = k * 32 % RUN;
    const u64 few = descriptor(x + run * 128 * RUN + inside, 128), many = descriptor(y + run * 256 * RUN + inside, 256);
    multiply_fp8(sums, few, many, k ? 1 : keep);
  }
  multiply_commit();
}

__device__ __forceinline__ u32 two(float low, float high) {
  u32 both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Four lanes have two neighbours of each of four groups of eight; afterwards each has the eight of one group.
__device__ __forceinline__ uint4 turned(u32 a, u32 b, u32 c, u32 d, int lane) {
  const bool odd = lane & 1, high = lane & 2;
  const u32 p = __shfl_xor_sync(~0u, odd ? a : b, 1), q = __shfl_xor_sync(~0u, odd ? c : d, 1);
  const u32 a1 = odd ? p : a, b1 = odd ? b : p, c1 = odd ? q : c, d1 = odd ? d : q;
  const u32 r = __shfl_xor_sync(~0u, high ? a1 : c1, 2), s = __shfl_xor_sync(~0u, high ? b1 : d1, 2);
  return high ? make_uint4(r, s, c1, d1) : make_uint4(a1, b1, r, s);
}

__device__ __forceinline__ void store(const Args& args, const float (&sums)[128], i64 row, i64 column, int lane) {
  unsigned char* to = args.c + row * args.c_row_bytes + 2 * (column + lane % 4 * 8);
#pragma unroll
  for (int group = 0; group < 8; ++group) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 v[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 16 * group + 4 * j + 2 * half;
        v[j] = two(args.scale * sums[at], args.scale * sums[at + 1]);
      }
      store_16(to + half * 8 * args.c_row_bytes + 64 * group, turned(v[0], v[1], v[2], v[3], lane));
    }
  }
}

extern "C" __global__ void __launch_bounds__(3 * WARPGROUP, 1)
    fp8_tiles(const __grid_constant__ Args args, const __grid_constant__ TensorMap map) {
  extern __shared__ __align__(1024) unsigned char shared[];
  Slot at{shared_address(shared)};
  const int thread = threadIdx.x % WARPGROUP;
  if (threadIdx.x == 0) {
    for (int slot = 0; slot < STAGES; ++slot) {
      barrier_init(at.base + BARRIERS_AT + 8 * slot, 1);
      barrier_init(at.base + BARRIERS_AT + 8 * (STAGES + slot), 2);
    }
    barrier_init_fence();
  }
  __syncthreads();
  let_next_launch_start();
  const int group = __shfl_sync(~0u, threadIdx.x / WARPGROUP, 0) - 1;
  if (threadIdx.x == 0) wait_for_last_launch();
  float sums[128];
  for (int work = blockIdx.x; work < args.tiles * args.token_blocks; work += gridDim.x) {
    const int tile = work / args.token_blocks, token = work % args.token_blocks * TOKENS;
    const int begin = load_early(args.stages + tile), end = load_early(args.stages + tile + 1);
    if (group < 0) {
      if (threadIdx.x != 0) break;
      for (int stage = begin; stage < end; ++stage, at.advance()) bring(args, &map, at, stage, token);
      continue;
    }
    u32 held = 0;
    for (int stage = begin; stage < end; ++stage, at.advance()) {
      barrier_wait(at.full(), at.parity);
      multiply_stage(sums, at, group, stage > begin);
      multiply_wait<1>();
      if (held && thread == 0) barrier_arrive(held);
      held = at.empty();
    }
    multiply_wait<0>();
    if (thread == 0) barrier_arrive(held);
    const int row = group * 64 + thread / 32 * 16 + thread % 32 / 4;
    const bool wide = WEIGHT_ROWS == 256;
    store(args, sums, row + (wide ? token : tile * WEIGHT_ROWS), wide ? tile * WEIGHT_ROWS : token, thread % 4);
  }
}
