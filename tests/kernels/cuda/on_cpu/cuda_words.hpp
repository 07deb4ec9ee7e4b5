// Words of CUDA C++ that the kernels use, for g++: types, qualifiers, indices, warp functions, numbers.
#pragma once
#include <math.h>
#include <string.h>

#include "machine_calls.hpp"

#define __global__
#define __device__
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)

struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct Dim3 { unsigned x, y, z; };

inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define threadIdx (Dim3{machine::thread_index(), 0, 0})
#define blockIdx (Dim3{machine::block_index(), 0, 0})
#define blockDim (Dim3{machine::thread_count(), 1, 1})
#define gridDim (Dim3{machine::block_count(), 1, 1})

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }

inline u64 __cvta_generic_to_shared(const void* pointer) { return machine::shared_address(pointer); }
inline long long clock64() { return static_cast<long long>(machine::now()); }
inline void __trap() { machine::fail("the kernel trapped"); }

inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// Threads yield only where they wait
inline int atomicAdd(int* to, int more) {
  const int before = *to;
  *to = before + more;
  return before;
}

template <class T>
T __ldcs(const T* from) {
  return *static_cast<const T*>(machine::global_at(reinterpret_cast<u64>(from), sizeof(T)));
}

// The 64 bits of (high, low) to the right, by at most 31
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<u64>(high) << 32 | low) >> (shift & 31));
}

inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const u64 both = static_cast<u64>(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(both >> (8 * (selector >> (4 * i) & 7)) & 255) << (8 * i);
  return result;
}

// ---- functions of a whole block or warp

inline void __syncthreads() { machine::meet_block(0, 0); }
inline void __syncwarp(unsigned mask = ~0u) {
  machine::meet_warp(mask, "__syncwarp", nullptr, [](void**) {});
}

struct Shuffled {
  unsigned value, from, got;
};

template <class T>
T shuffled(unsigned mask, const char* what, T value, unsigned from) {
  static_assert(sizeof(T) == 4);
  Shuffled mine{0, from & 31, 0};
  memcpy(&mine.value, &value, 4);
  machine::meet_warp(mask, what, &mine, [](void** parts) {
    for (int i = 0; i < 32; ++i) {
      Shuffled& lane = *static_cast<Shuffled*>(parts[i]);
      lane.got = static_cast<Shuffled*>(parts[lane.from])->value;
    }
  });
  memcpy(&value, &mine.got, 4);
  return value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
  return shuffled(mask, "__shfl_sync", value, lane);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int step) {
  return shuffled(mask, "__shfl_xor_sync", value, machine::thread_index() % 32 ^ step);
}

inline unsigned __ballot_sync(unsigned mask, bool mine) {
  unsigned part = mine;
  machine::meet_warp(mask, "__ballot_sync", &part, [](void** parts) {
    unsigned all = 0;
    for (int i = 0; i < 32; ++i) all |= *static_cast<unsigned*>(parts[i]) << i;
    for (int i = 0; i < 32; ++i) *static_cast<unsigned*>(parts[i]) = all;
  });
  return part;
}

inline bool __all_sync(unsigned mask, bool mine) { return __ballot_sync(mask, mine) == ~0u; }
inline bool __any_sync(unsigned mask, bool mine) { return __ballot_sync(mask, mine) != 0; }
