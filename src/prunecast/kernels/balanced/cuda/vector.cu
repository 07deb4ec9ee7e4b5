// C (M, 1) = A (M, K) B (K, 1) with balanced A: one warp multiplies ROWS rows, each lane the columns of its bank.
//
// The columns of A are cut into segments and segment s belongs to lane s mod 32. In shared memory the elements
// of B that belong to a lane lie in the bank of its number, so that all lanes read what they like at once; a
// balanced pattern gives every lane equally many elements. Weights do not depend on the launch before: they are
// under way before B is waited for.
//
// Defines: ROWS, SEGMENT, INDEX_BYTES 1 or 2, HALF, BIAS, ACTIVATION.
#include "element.cuh"

constexpr int WARPS = 16;
constexpr int AHEAD = ROWS * (3 + INDEX_BYTES) > 14 ? 2 : 3;  // chunks under way for every row

struct VectorArgs {
  const unsigned char* values;   // [row group][chunk][row of ROWS][lane] of 4 elements of A
  const unsigned char* indices;  // the same of 4 places in the lane's bank
  const Element* b;
  Element* c;
  const float* bias;
  u64* clock;
  i64 b_step;                    // elements between two tokens' features
  i64 c_step;
  int m;
  int k;
  int chunks;                    // of 4 elements per lane and row
  int places;                    // words of a bank, less the zero at its end
};

struct Chunk {
#if HALF
  uint2 values;
#else
  float4 values;
#endif
#if INDEX_BYTES == 1
  u32 places;
#else
  uint2 places;
#endif
};

__device__ __forceinline__ Chunk load(const VectorArgs& args, i64 place) {
  Chunk chunk;
  chunk.values = __ldcs(reinterpret_cast<const decltype(chunk.values)*>(args.values) + place);
  chunk.places = __ldcs(reinterpret_cast<const decltype(chunk.places)*>(args.indices) + place);
  return chunk;
}

__device__ __forceinline__ float value(const Chunk& chunk, int i) {
#if HALF
  const u32 both = i < 2 ? chunk.values.x : chunk.values.y;
  return to_float(static_cast<Element>(both >> (16 * (i & 1))));
#else
  return i == 0 ? chunk.values.x : i == 1 ? chunk.values.y : i == 2 ? chunk.values.z : chunk.values.w;
#endif
}

__device__ __forceinline__ u32 place(const Chunk& chunk, int i) {
#if INDEX_BYTES == 1
  return (chunk.places >> (8 * i)) & 0xff;
#else
  const u32 both = i < 2 ? chunk.places.x : chunk.places.y;
  return (both >> (16 * (i & 1))) & 0xffff;
#endif
}

// Column c is element c mod SEGMENT of segment c / SEGMENT; words that no column fills are zero, those at the
// end of every bank are what padding reads. A warp takes 4 elements of 8 segments at once, so that neither
// sectors of B nor banks are spent on one word.
__device__ __forceinline__ void spread(const VectorArgs& args, float* banks) {
  const int lane = threadIdx.x & 31, inside = lane % 4, beside = lane / 4;
#pragma unroll 4
  for (int piece = threadIdx.x / 32; piece < args.places; piece += WARPS) {
    const int round = piece / SEGMENT, rest = piece % SEGMENT;  // SEGMENT pieces of 8 x 4 make a round
    const int bank = rest % 4 * 8 + beside, element = rest / 4 * 4 + inside;
    const int column = (32 * round + bank) * SEGMENT + element;
    const float x = column < args.k ? to_float(args.b[column * args.b_step]) : 0.0f;
    banks[32 * (round * SEGMENT + element) + bank] = x;
  }
  if (threadIdx.x < 32) banks[32 * args.places + lane] = 0.0f;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) balanced_vector(const __grid_constant__ VectorArgs args) {
  extern __shared__ float banks[];
  const bool timed = blockIdx.x == 0 && threadIdx.x == 0;
  if (timed) args.clock[0] = clock64(), args.clock[1] = global_nanoseconds();
  let_next_launch_start();
  const int lane = threadIdx.x & 31;
  const int group = blockIdx.x * WARPS + threadIdx.x / 32;
  const bool works = group * ROWS < args.m;
  const i64 first = static_cast<i64>(works ? group : 0) * args.chunks * ROWS * 32 + lane;
  Chunk ahead[AHEAD][ROWS];
#pragma unroll
  for (int c = 0; c < AHEAD; ++c) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) ahead[c][r] = load(args, first + 32 * (min(c, args.chunks - 1) * ROWS + r));
  }
  wait_for_last_launch();
  spread(args, banks);
  __syncthreads();
  float sums[ROWS] = {};
  for (int begin = 0; begin < args.chunks; begin += AHEAD) {
#pragma unroll
    for (int d = 0; d < AHEAD; ++d) {
      if (begin + d >= args.chunks) break;
      const int later = begin + d + AHEAD;
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const Chunk chunk = ahead[d][r];
        if (later < args.chunks) ahead[d][r] = load(args, first + 32 * (later * ROWS + r));
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[r] = fmaf(value(chunk, i), banks[32 * place(chunk, i) + lane], sums[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
#pragma unroll
    for (int step = 16; step; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
  }
  if (works && lane < ROWS && group * ROWS + lane < args.m) {
    float sum = sums[0];
#pragma unroll
    for (int r = 1; r < ROWS; ++r) sum = lane == r ? sums[r] : sum;
    const int row = group * ROWS + lane;
#if BIAS
    const float bias = args.bias[row];
#else
    const float bias = 0.0f;
#endif
    args.c[row * args.c_step] = finish(sum, bias);
  }
  if (timed) args.clock[2] = clock64(), args.clock[3] = global_nanoseconds();
}
