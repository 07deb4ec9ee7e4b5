// X in e4m3 with a scale per token, of X (tokens, features) in fp16 or BF16.
//
// Contract: a block per token, 256 threads, 32 bytes of shared memory. Rows of both begin at multiples of 16 bytes,
// `features` is a multiple of 16 and at most 2048 CHUNKS. The scale is the largest size of a token over 448, or 1 if all
// are zero; numbers are multiplied by 448 over that size and rounded to nearest even. It may start before the launch
// that writes X has ended.
#include "activation.cuh"
#include "ptx.cuh"

struct QuantiseArgs {
  const unsigned char* x;
  unsigned char* y;
  float* scales;
  long long x_row_bytes;
  long long features;
};

constexpr int THREADS = 256, CHUNK = 8;
constexpr float LARGEST = 448.0f;

__device__ inline float larger_of_pair(float size, u32 pair) {
  return fmaxf(size, fmaxf(fabsf(widened(pair & 0xffffu)), fabsf(widened(pair >> 16))));
}

__device__ inline u32 e4m3_pair(u32 pair, float inverse) {
  unsigned short both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(both)
      : "f"(widened(pair >> 16) * inverse), "f"(widened(pair & 0xffffu) * inverse));
  return both;
}

__device__ inline u32 e4m3_four(u32 first, u32 second, float inverse) {
  return e4m3_pair(first, inverse) | e4m3_pair(second, inverse) << 16;
}

extern "C" __global__ void __launch_bounds__(THREADS) quantise_rows(QuantiseArgs args) {
  extern __shared__ float of_warps[];
  uint4 read[CHUNKS];
  const unsigned char* from = args.x + blockIdx.x * args.x_row_bytes;
  const int features = static_cast<int>(args.features);
  let_next_launch_start();
  wait_for_last_launch();
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    const int feature = (i * THREADS + threadIdx.x) * CHUNK;
    read[i] = feature < features ? *reinterpret_cast<const uint4*>(from + 2ll * feature) : make_uint4(0, 0, 0, 0);
  }
  float size = 0.0f;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    size = larger_of_pair(larger_of_pair(size, read[i].x), read[i].y);
    size = larger_of_pair(larger_of_pair(size, read[i].z), read[i].w);
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) size = fmaxf(size, __shfl_xor_sync(0xffffffff, size, step));
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = size;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) size = fmaxf(size, of_warps[warp]);
  const float inverse = size > 0.0f ? LARGEST / size : 1.0f;
  if (threadIdx.x == 0) args.scales[blockIdx.x] = size > 0.0f ? size * (1.0f / LARGEST) : 1.0f;
  unsigned char* to = args.y + blockIdx.x * args.features;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    const int feature = (i * THREADS + threadIdx.x) * CHUNK;
    const uint2 four = make_uint2(e4m3_four(read[i].x, read[i].y, inverse), e4m3_four(read[i].z, read[i].w, inverse));
    if (feature < features) *reinterpret_cast<uint2*>(to + feature) = four;
  }
}
