// X in e4m3 with a scale per token, of X (tokens, features) in fp16 or BF16.
//
// Contract: a block per token, 256 threads, 64 bytes of shared memory. Rows of both begin at multiples of 16 bytes,
// `features` is a multiple of 16 and at most 2048 CHUNKS. The scale is the largest absolute value of a token over 448,
// or 1 if all are zero; values are multiplied by 448 over that maximum and rounded to nearest even. It may start before
// the launch that writes X has ended.
//
// NORMED 1: what is quantised is x / sqrt(mean of x * x + epsilon) * weight, in fp32, with a weight for each feature in
// the format of X, at a multiple of 16 bytes.
#include "activation.cuh"
#include "ptx.cuh"

#ifndef NORMED
#define NORMED 0
#endif

struct QuantiseArgs {
  const unsigned char* x;
  unsigned char* y;
  float* scales;
  long long x_row_bytes;
  long long features;
#if NORMED
  const unsigned char* weight;
  double epsilon;
#endif
};

constexpr int THREADS = 256, CHUNK = 8;
constexpr float LARGEST = 448.0f;

// Maximum, or sum, over all threads of the block.
template <bool ADDS>
__device__ inline float of_block(float own, float* of_warps) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(0xffffffff, own, step);
    own = ADDS ? own + other : fmaxf(own, other);
  }
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = own;
  __syncthreads();
  float all = of_warps[0];
#pragma unroll
  for (int warp = 1; warp < THREADS / 32; ++warp) all = ADDS ? all + of_warps[warp] : fmaxf(all, of_warps[warp]);
  return all;
}

// Two numbers as they are, or multiplied by the inverse deviation of the token and their weights.
__device__ inline float2 numbers_of(u32 pair, u32 weights, float scale) {
#if NORMED
  return make_float2(widened(pair & 0xffffu) * scale * widened(weights & 0xffffu),
                     widened(pair >> 16) * scale * widened(weights >> 16));
#else
  return make_float2(widened(pair & 0xffffu), widened(pair >> 16));
#endif
}

__device__ inline float larger_of_pair(float size, float2 pair) {
  return fmaxf(size, fmaxf(fabsf(pair.x), fabsf(pair.y)));
}

__device__ inline float squares_of_pair(u32 pair) {
  const float even = widened(pair & 0xffffu), odd = widened(pair >> 16);
  return even * even + odd * odd;
}

__device__ inline u32 e4m3_pair(float2 pair, float inverse) {
  unsigned short both;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(pair.y * inverse), "f"(pair.x * inverse));
  return both;
}

__device__ inline u32 e4m3_four(float2 first, float2 second, float inverse) {
  return e4m3_pair(first, inverse) | e4m3_pair(second, inverse) << 16;
}

extern "C" __global__ void __launch_bounds__(THREADS) quantise_rows(QuantiseArgs args) {
  extern __shared__ float of_warps[];
  uint4 read[CHUNKS], weights[CHUNKS];
  const unsigned char* from = args.x + blockIdx.x * args.x_row_bytes;
  const int features = static_cast<int>(args.features);
  let_next_launch_start();
  wait_for_last_launch();
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    const int feature = (i * THREADS + threadIdx.x) * CHUNK;
    read[i] = weights[i] = make_uint4(0, 0, 0, 0);
    if (feature < features) {
      read[i] = *reinterpret_cast<const uint4*>(from + 2ll * feature);
#if NORMED
      weights[i] = *reinterpret_cast<const uint4*>(args.weight + 2ll * feature);
#endif
    }
  }
  float scale = 1.0f;
#if NORMED
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    squares += squares_of_pair(read[i].x) + squares_of_pair(read[i].y);
    squares += squares_of_pair(read[i].z) + squares_of_pair(read[i].w);
  }
  const float mean = of_block<true>(squares, of_warps + THREADS / 32) / static_cast<float>(features);
  scale = 1.0f / sqrtf(mean + static_cast<float>(args.epsilon));
#endif
  float size = 0.0f;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    size = larger_of_pair(size, numbers_of(read[i].x, weights[i].x, scale));
    size = larger_of_pair(size, numbers_of(read[i].y, weights[i].y, scale));
    size = larger_of_pair(size, numbers_of(read[i].z, weights[i].z, scale));
    size = larger_of_pair(size, numbers_of(read[i].w, weights[i].w, scale));
  }
  size = of_block<false>(size, of_warps);
  const float inverse = size > 0.0f ? LARGEST / size : 1.0f;
  if (threadIdx.x == 0) args.scales[blockIdx.x] = size > 0.0f ? size * (1.0f / LARGEST) : 1.0f;
  unsigned char* to = args.y + blockIdx.x * args.features;
#pragma unroll
  for (int i = 0; i < CHUNKS; ++i) {
    const int feature = (i * THREADS + threadIdx.x) * CHUNK;
    const float2 pairs[4] = {
        numbers_of(read[i].x, weights[i].x, scale), numbers_of(read[i].y, weights[i].y, scale),
        numbers_of(read[i].z, weights[i].z, scale), numbers_of(read[i].w, weights[i].w, scale)};
    const uint2 eight = make_uint2(e4m3_four(pairs[0], pairs[1], inverse), e4m3_four(pairs[2], pairs[3], inverse));
    if (feature < features) *reinterpret_cast<uint2*>(to + feature) = eight;
  }
}
