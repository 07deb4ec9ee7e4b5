// Planes of images (prunecast/plan/conv_grid.py) from images in another layout, or from other planes.
//
// Contract: elements of 2 bytes, BF16 or fp16; a pixel is `batch` contiguous images, a multiple of 8. Both kernels
// write all of the planes, including the zeros of the borders. MODE 0: max pooling with windows of SIZE x SIZE pixels,
// a stride of STRIDE and PADDING pixels of padding. MODE 1: average pooling, in which padding counts as zeros. MODE 2:
// upsampling by SIZE with the nearest pixel. RELU 1: ReLU of the result. `into_planes`: one block per 64 neighbours in
// memory, 32 images and one position of the other axes. CHANNELS 1: the neighbours are channels, otherwise pixels of a
// line. `between_planes`: one thread per 8 images of a pixel.
#include "ptx.cuh"

#ifndef BF16
#define BF16 0
#endif
#ifndef CHANNELS
#define CHANNELS 1
#endif
#ifndef MODE
#define MODE 0
#endif
#ifndef RELU
#define RELU 0
#endif
#ifndef SIZE
#define SIZE 1
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef PADDING
#define PADDING 0
#endif

using u16 = unsigned short;

struct Plane {
  int planes;
  int height;
  int width;
  int border;

  __device__ __forceinline__ int line() const { return width + border; }
  __device__ __forceinline__ int size() const { return (height + border) * line(); }
  __device__ __forceinline__ int first() const { return border * line() + border; }
  __device__ __forceinline__ i64 pixels() const { return static_cast<i64>(planes) * size() + first() + border; }
};

struct PlanesArgs {
  const unsigned char* x;
  unsigned char* out;
  i64 image, channel, row, column;  // strides of x in elements, for images in another layout
  Plane from;                       // of x
  Plane to;
  int images;  // number of images of x; the others are zeros
  int batch;
  int blocks_across;  // of 64 neighbours
  int groups;         // of 32 images
};

constexpr int THREADS = 256, EDGE = 64, IMAGES = 32, PITCH = IMAGES + 2;

__device__ __forceinline__ float number(u16 bits) {
#if BF16
  return __uint_as_float(static_cast<u32>(bits) << 16);
#else
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(bits));
  return y;
#endif
}

__device__ __forceinline__ u16 bits_of(float x) {
  u16 y;
#if BF16
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
#endif
  return y;
}

// Adds a value to the result of its window so far; NaN propagates.
__device__ __forceinline__ float joined(float found, float value, bool is_first) {
#if MODE == 1
  return is_first ? value : found + value;
#else
  return is_first || value > found || value != value ? value : found;
#endif
}

__device__ __forceinline__ float ended(float found) {
#if MODE == 1
  found = found * (1.0f / (SIZE * SIZE));
#endif
#if RELU
  found = found < 0.0f ? 0.0f : found;
#endif
  return found;
}

// Writes the zeros before the first plane and after the last one.
__device__ __forceinline__ void clear_ends(const PlanesArgs& args, int thread) {
  const int chunks = args.batch / 8, before = args.to.first() * chunks, all = before + args.to.border * chunks;
  const i64 behind = static_cast<i64>(args.to.planes) * args.to.size() * chunks;
  for (int i = thread; i < all; i += THREADS) {
    store_16(args.out + 16ll * (i < before ? i : i + behind), make_uint4(0, 0, 0, 0));
  }
}

// Results for two neighbours of an image; the first pixel of their window is (y, x) of x.
__device__ __forceinline__ void window(const PlanesArgs& args, const u16* from, int y, int x, bool second,
                                       float (&found)[2]) {
  bool is_first = true;
#pragma unroll
  for (int dy = 0; dy < SIZE; ++dy) {
#pragma unroll
    for (int dx = 0; dx < SIZE; ++dx) {
      if (y + dy < 0 || y + dy >= args.from.height || x + dx < 0 || x + dx >= args.from.width) continue;
      const u16* at = from + dy * args.row + dx * args.column;
      if (CHANNELS && second) {
        const u32 both = *reinterpret_cast<const u32*>(at);
        found[0] = joined(found[0], number(both & 0xffff), is_first);
        found[1] = joined(found[1], number(both >> 16), is_first);
      } else {
        found[0] = joined(found[0], number(*at), is_first);
      }
      is_first = false;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS) into_planes(PlanesArgs args) {
  extern __shared__ u32 words[];
  u16* tile = reinterpret_cast<u16*>(words);
  const int thread = threadIdx.x, height = args.to.height + args.to.border;
  const int first_image = blockIdx.x % args.groups * IMAGES, block = blockIdx.x / args.groups;
  const int across = block % args.blocks_across * EDGE;  // first of the neighbours
  const int place = block / args.blocks_across;          // pixel of a plane, or line of all planes
  const int neighbours = CHANNELS ? args.to.planes : args.to.line();
  const int y = CHANNELS ? place / args.to.line() : place % height;
  const int plane = place / height;  // with lines
  let_next_launch_start();
  wait_for_last_launch();
  if (blockIdx.x == 0) clear_ends(args, thread);

  constexpr int AT_ONCE = CHANNELS ? 2 : 1, LANES = EDGE / AT_ONCE, ROWS = THREADS / LANES;
#pragma unroll
  for (int i = 0; i < IMAGES / ROWS; ++i) {
    const int row = thread / LANES + i * ROWS, image = first_image + row;
    const int own = thread % LANES * AT_ONCE, neighbour = across + own;
    const int x = CHANNELS ? place % args.to.line() : neighbour;
    float found[2] = {0.0f, 0.0f};
    if (image < args.images && neighbour < neighbours && y < args.to.height && x < args.to.width) {
      const int from_y = y * STRIDE - PADDING, from_x = x * STRIDE - PADDING;
      const u16* from = reinterpret_cast<const u16*>(args.x) + image * args.image +
                        (CHANNELS ? neighbour : plane) * args.channel + from_y * args.row + from_x * args.column;
      window(args, from, from_y, from_x, neighbour + 1 < neighbours, found);
    }
#pragma unroll
    for (int j = 0; j < AT_ONCE; ++j) tile[(own + j) * PITCH + row] = bits_of(ended(found[j]));
  }
  __syncthreads();
  const int own = thread / 4, neighbour = across + own, image = first_image + thread % 4 * 8;
  if (neighbour >= neighbours || image >= args.batch) return;
  const u32* at = words + (own * PITCH + thread % 4 * 8) / 2;
  const i64 pixel = args.to.first() + (CHANNELS ? static_cast<i64>(neighbour) * args.to.size() + place
                                                : static_cast<i64>(place) * args.to.line() + neighbour);
  store_16(args.out + 2 * (pixel * args.batch + image), make_uint4(at[0], at[1], at[2], at[3]));
}

extern "C" __global__ void __launch_bounds__(THREADS) between_planes(PlanesArgs args) {
  const int chunks = args.batch / 8;
  const i64 at = static_cast<i64>(blockIdx.x) * THREADS + threadIdx.x;
  const i64 pixel = at / chunks;
  if (pixel >= args.to.pixels()) return;
  const i64 inside = pixel - args.to.first();
  const int plane = static_cast<int>(inside / args.to.size());
  const int rest = static_cast<int>(inside - static_cast<i64>(plane) * args.to.size());
  const int y = rest / args.to.line(), x = rest % args.to.line();
  let_next_launch_start();
  wait_for_last_launch();
  u32 word[4] = {0, 0, 0, 0};
  if (inside >= 0 && plane < args.to.planes && y < args.to.height && x < args.to.width) {
    float found[8] = {};
    bool is_first = true;
    constexpr int WINDOW = MODE == 2 ? 1 : SIZE;
    const int from_y = MODE == 2 ? y / SIZE : y * STRIDE - PADDING;
    const int from_x = MODE == 2 ? x / SIZE : x * STRIDE - PADDING;
    const i64 first = args.from.first() + static_cast<i64>(plane) * args.from.size();
#pragma unroll
    for (int dy = 0; dy < WINDOW; ++dy) {
#pragma unroll
      for (int dx = 0; dx < WINDOW; ++dx) {
        const int of_y = from_y + dy, of_x = from_x + dx;
        if (of_y < 0 || of_y >= args.from.height || of_x < 0 || of_x >= args.from.width) continue;
        const i64 source = (first + of_y * args.from.line() + of_x) * chunks + (at - pixel * chunks);
        const uint4 v = *reinterpret_cast<const uint4*>(args.x + 16 * source);
        const u32 part[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          found[i] = joined(found[i], number(part[i / 2] >> i % 2 * 16 & 0xffff), is_first);
        }
        is_first = false;
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      word[i] = static_cast<u32>(bits_of(ended(found[2 * i + 1]))) << 16 | bits_of(ended(found[2 * i]));
    }
  }
  store_16(args.out + 16 * at, make_uint4(word[0], word[1], word[2], word[3]));
}
