// Rotary embedding of the first heads of each row of Y (tokens, features), in place, in fp16 or BF16.
//
// Contract: a block per token, 256 threads. Head h has features [h * width, (h + 1) * width). Its first half becomes
// first * cos - second * sin, its second half second * cos + first * sin, with the cos and sin of the feature that is
// written; sums are fp32 and rounded once. Token t reads row t % periods of cos and sin (periods, width). `width` is a
// multiple of 16 and at most 4096. Rows of Y, cos and sin begin at multiples of 16 bytes. It may start before the launch
// that writes Y has ended.
#include "activation.cuh"
#include "ptx.cuh"

struct RotateArgs {
  unsigned char* y;
  const unsigned char* cos;
  const unsigned char* sin;
  long long y_row_bytes;
  long long heads;
  long long width;
  long long periods;
};

constexpr int THREADS = 256, CHUNK = 8;
constexpr int BATCH = 2;  // heads of a thread that are loaded at once

__device__ inline u32 rotated_pair(u32 x, u32 other, u32 cos, u32 sin, float sign) {
  return round_both(
      widened(x & 0xffffu) * widened(cos & 0xffffu) + sign * widened(other & 0xffffu) * widened(sin & 0xffffu),
      widened(x >> 16) * widened(cos >> 16) + sign * widened(other >> 16) * widened(sin >> 16));
}

__device__ inline uint4 rotated(uint4 x, uint4 other, uint4 cos, uint4 sin, float sign) {
  return make_uint4(rotated_pair(x.x, other.x, cos.x, sin.x, sign), rotated_pair(x.y, other.y, cos.y, sin.y, sign),
                    rotated_pair(x.z, other.z, cos.z, sin.z, sign), rotated_pair(x.w, other.w, cos.w, sin.w, sign));
}

__device__ inline uint4 eight_of(const unsigned char* from) { return *reinterpret_cast<const uint4*>(from); }

extern "C" __global__ void __launch_bounds__(THREADS) rotate_heads(RotateArgs args) {
  const int width = static_cast<int>(args.width), heads = static_cast<int>(args.heads);
  const int chunks = width / (2 * CHUNK), at_once = THREADS / chunks;
  const int first = threadIdx.x / chunks, half_bytes = width;
  const long long chunk_byte = threadIdx.x % chunks * (2ll * CHUNK);
  const long long angle = blockIdx.x % args.periods * 2 * width + chunk_byte;
  let_next_launch_start();
  wait_for_last_launch();
  if (first >= at_once) return;
  const uint4 first_cos = eight_of(args.cos + angle), second_cos = eight_of(args.cos + angle + half_bytes);
  const uint4 first_sin = eight_of(args.sin + angle), second_sin = eight_of(args.sin + angle + half_bytes);
  unsigned char* row = args.y + blockIdx.x * args.y_row_bytes + chunk_byte;
#pragma unroll 1
  for (int head = first; head < heads; head += BATCH * at_once) {
    uint4 of_first[BATCH], of_second[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      const unsigned char* from = row + min(head + i * at_once, heads - 1) * 2ll * width;
      of_first[i] = eight_of(from), of_second[i] = eight_of(from + half_bytes);
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (head + i * at_once >= heads) break;
      unsigned char* to = row + (head + i * at_once) * 2ll * width;
      *reinterpret_cast<uint4*>(to) = rotated(of_first[i], of_second[i], first_cos, first_sin, -1.0f);
      *reinterpret_cast<uint4*>(to + half_bytes) = rotated(of_second[i], of_first[i], second_cos, second_sin, 1.0f);
    }
  }
}
