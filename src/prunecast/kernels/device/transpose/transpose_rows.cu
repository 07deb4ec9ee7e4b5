// B (features, tokens) of X (tokens, features), elements of 2 bytes.
//
// Contract: a block per square of 64 tokens and 64 features, 256 threads, 64 * 33 * 4 bytes of shared memory. Rows of X
// and of B begin at multiples of 16 bytes, `features` and `padded` are multiples of 8; tokens of B from `tokens` to
// `padded` become zero. Reads and writes whole 128-byte lines. Runs on every architecture;
// from 9.0 on it may start before the launch that writes X has ended.
//
// NORMED 1: B holds ((X - shift) * scale) * weight + bias instead, which is a normalisation if shift and scale are each
// token's mean and inverse deviation. SHIFT, WEIGHT, BIAS 0 or 1: those that there are. ROUNDS 1: rounded before the
// product with the weight. Sums are fp32; fp16, or BF16. Weights and biases begin at multiples of 16 bytes.
//
// GATHERED 1: column t of B is token source[t] of X, zero for a negative one; only the first `columns` are written, up
// to whole squares.
#include "activation.cuh"
#include "ptx.cuh"

#ifndef NORMED
#define NORMED 0
#endif
#ifndef GATHERED
#define GATHERED 0
#endif

struct TransposeArgs {
  const unsigned char* x;
  unsigned char* b;
  long long x_row_bytes;
  long long b_row_bytes;
  int tokens;
  int padded;
  int features;
  int blocks_across;  // squares beside one another, along the features
#if NORMED
  const float* shift;
  const float* scale;
  const unsigned char* weight;
  const unsigned char* bias;
#endif
#if GATHERED
  const int* source;   // (padded,)
  const int* columns;  // how many
#endif
};

// A row of a square has 32 words of two features, and one word of padding, to avoid bank conflicts.
constexpr int EDGE = 64, PITCH = 33, CHUNKS = EDGE * EDGE / 8, PAIRS = EDGE * EDGE / 16;
#ifndef THREADS
#define THREADS 256
#endif

__device__ inline u32 low(u32 first, u32 second) { return (first & 0xffffu) | (second << 16); }
__device__ inline u32 high(u32 first, u32 second) { return (first >> 16) | (second & 0xffff0000u); }

// Eight features of a token, by their number in the square.
__device__ inline uint4 chunk_of(const TransposeArgs& args, int first_token, int first_feature, int at) {
  const int token = first_token + at / 8, feature = first_feature + at % 8 * 8;
#if GATHERED
  const int row = token < *args.columns && feature < args.features ? args.source[token] : -1;
  if (row < 0) return make_uint4(0, 0, 0, 0);
#else
  const int row = token;
  if (token >= args.tokens || feature >= args.features) return make_uint4(0, 0, 0, 0);
#endif
  return *reinterpret_cast<const uint4*>(args.x + row * args.x_row_bytes + 2ll * feature);
}

#if NORMED
__device__ inline u32 normed_pair(u32 x, float shift, float scale, u32 weight, u32 bias) {
  float even = (widened(x & 0xffffu) - shift) * scale, odd = (widened(x >> 16) - shift) * scale;
#if ROUNDS
  const u32 rounded = round_both(even, odd);
  even = widened(rounded & 0xffffu), odd = widened(rounded >> 16);
#endif
#if WEIGHT
  even *= widened(weight & 0xffffu), odd *= widened(weight >> 16);
#endif
#if BIAS
  even += widened(bias & 0xffffu), odd += widened(bias >> 16);
#endif
  return round_both(even, odd);
}

// Eight features of a token, normalised.
__device__ inline uint4 normed(const TransposeArgs& args, uint4 x, int first_token, int first_feature, int at) {
  const int token = first_token + at / 8, feature = first_feature + at % 8 * 8;
  if (token >= args.tokens || feature >= args.features) return x;
  const float scale = args.scale[token];
  float shift = 0.0f;
  uint4 weight = make_uint4(0, 0, 0, 0), bias = make_uint4(0, 0, 0, 0);
#if SHIFT
  shift = args.shift[token];
#endif
#if WEIGHT
  weight = *reinterpret_cast<const uint4*>(args.weight + 2ll * feature);
#endif
#if BIAS
  bias = *reinterpret_cast<const uint4*>(args.bias + 2ll * feature);
#endif
  return make_uint4(normed_pair(x.x, shift, scale, weight.x, bias.x), normed_pair(x.y, shift, scale, weight.y, bias.y),
                    normed_pair(x.z, shift, scale, weight.z, bias.z), normed_pair(x.w, shift, scale, weight.w, bias.w));
}
#endif

// Eight tokens of two features.
__device__ inline void write_pair(const TransposeArgs& args, const u32* square, int first_token, int first_feature,
                                  int at) {
  const int pair = at / 8, group = at % 8;
  const int feature = first_feature + 2 * pair, token = first_token + 8 * group;
  if (feature >= args.features || token >= args.padded) return;
  u32 of[8];
  for (int j = 0; j < 8; ++j) of[j] = square[(8 * group + j) * PITCH + pair];
  unsigned char* to = args.b + feature * args.b_row_bytes + 2ll * token;
  *reinterpret_cast<uint4*>(to) = make_uint4(low(of[0], of[1]), low(of[2], of[3]), low(of[4], of[5]), low(of[6], of[7]));
  *reinterpret_cast<uint4*>(to + args.b_row_bytes) =
      make_uint4(high(of[0], of[1]), high(of[2], of[3]), high(of[4], of[5]), high(of[6], of[7]));
}

extern "C" __global__ void __launch_bounds__(THREADS) transpose_rows(TransposeArgs args) {
  extern __shared__ u32 square[];
  uint4 read[CHUNKS / THREADS];  // all loads in flight at once
  const int first_feature = blockIdx.x % args.blocks_across * EDGE;
  const int first_token = blockIdx.x / args.blocks_across * EDGE;
#if GATHERED
  wait_for_last_launch();
  let_next_launch_start();  // which may then read the items of experts
  if (first_token >= *args.columns) return;
#else
  let_next_launch_start();
  wait_for_last_launch();
#endif

#pragma unroll
  for (int i = 0; i < CHUNKS / THREADS; ++i)
    read[i] = chunk_of(args, first_token, first_feature, threadIdx.x + i * THREADS);
#pragma unroll
  for (int i = 0; i < CHUNKS / THREADS; ++i) {
    const int at = threadIdx.x + i * THREADS;
    u32* to = square + at / 8 * PITCH + 4 * (at % 8);
#if NORMED
    read[i] = normed(args, read[i], first_token, first_feature, at);
#endif
    to[0] = read[i].x, to[1] = read[i].y, to[2] = read[i].z, to[3] = read[i].w;
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < PAIRS; i += THREADS) write_pair(args, square, first_token, first_feature, i);
}
