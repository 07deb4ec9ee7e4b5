// B (features, tokens) of X (tokens, features), elements of 2 bytes.
//
// Contract: a block per square of 64 tokens and 64 features, 256 threads, 64 * 33 * 4 bytes of shared memory. Rows of X
// and of B begin at multiples of 16 bytes, `features` and `padded` are multiples of 8; tokens of B from `tokens` to
// `padded` become zero. Reads and writes whole 128-byte lines. Runs on every architecture;
// from 9.0 on it may start before the launch that writes X has ended.
#include "ptx.cuh"

struct TransposeArgs {
  const unsigned char* x;
  unsigned char* b;
  long long x_row_bytes;
  long long b_row_bytes;
  int tokens;
  int padded;
  int features;
  int blocks_across;  // squares beside one another, along the features
};

// A row of a square has 32 words of two features; one more keeps the 8 tokens of a word of B out of each other's bank.
constexpr int EDGE = 64, PITCH = 33;

__device__ inline u32 low(u32 first, u32 second) { return (first & 0xffffu) | (second << 16); }
__device__ inline u32 high(u32 first, u32 second) { return (first >> 16) | (second & 0xffff0000u); }

extern "C" __global__ void __launch_bounds__(256) transpose_rows(TransposeArgs args) {
  extern __shared__ u32 square[];
  const int first_feature = blockIdx.x % args.blocks_across * EDGE;
  const int first_token = blockIdx.x / args.blocks_across * EDGE;
  let_next_launch_start();
  wait_for_last_launch();

  for (int i = threadIdx.x; i < EDGE * EDGE / 8; i += blockDim.x) {
    const int token = i / 8, chunk = i % 8;
    const int feature = first_feature + 8 * chunk;
    uint4 words = make_uint4(0, 0, 0, 0);
    if (first_token + token < args.tokens && feature < args.features)
      words = *reinterpret_cast<const uint4*>(args.x + (first_token + token) * args.x_row_bytes + 2ll * feature);
    u32* to = square + token * PITCH + 4 * chunk;
    to[0] = words.x, to[1] = words.y, to[2] = words.z, to[3] = words.w;
  }
  __syncthreads();

  const int pair = threadIdx.x / 8, group = threadIdx.x % 8;
  const int feature = first_feature + 2 * pair, token = first_token + 8 * group;
  if (feature >= args.features || token >= args.padded) return;
  u32 of[8];
  for (int j = 0; j < 8; ++j) of[j] = square[(8 * group + j) * PITCH + pair];
  unsigned char* to = args.b + feature * args.b_row_bytes + 2ll * token;
  *reinterpret_cast<uint4*>(to) = make_uint4(low(of[0], of[1]), low(of[2], of[3]), low(of[4], of[5]), low(of[6], of[7]));
  *reinterpret_cast<uint4*>(to + args.b_row_bytes) =
      make_uint4(high(of[0], of[1]), high(of[2], of[3]), high(of[4], of[5]), high(of[6], of[7]));
}
