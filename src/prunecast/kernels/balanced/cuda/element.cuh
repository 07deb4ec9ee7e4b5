// Elements of B and C in the balanced kernels: fp32, fp16 or bf16 in memory, fp32 in registers.
//
// Runs from compute capability 7.5 on. Contract: HALF 0 for fp32, 1 for fp16, 2 for bf16. Sums are fp32; C is rounded to nearest even once, after
// bias and activation (see activation.cuh for their names).
#pragma once
#include "activation.cuh"
#include "ptx.cuh"

#ifndef HALF
#define HALF 0
#endif

// ---- what older architectures lack: asynchronous copies (8.0)

// 16 bytes into shared memory, or 16 zeros.
__device__ __forceinline__ void fetch_16(unsigned char* to, const void* from, bool there) {
#if __CUDA_ARCH__ >= 800
  copy_16(shared_address(to), from, there ? 16 : 0);
#else
  const uint4 zero = make_uint4(0, 0, 0, 0);
  *reinterpret_cast<uint4*>(to) = there ? *static_cast<const uint4*>(from) : zero;
#endif
}

__device__ __forceinline__ void wait_for_fetches() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

#if HALF
using Element = unsigned short;
#else
using Element = float;
#endif

__device__ __forceinline__ float to_float(Element x) {
#if HALF == 0
  return x;
#elif HALF == 1
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
#else
  return __uint_as_float(static_cast<u32>(x) << 16);
#endif
}

// Sum of one element of C -> what is stored.
__device__ __forceinline__ Element finish(float sum, float bias) {
#if BIAS
  sum += bias;
#endif
  sum = activate(sum);
#if HALF == 0
  return sum;
#else
  Element y;
#if HALF == 1
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(sum));
#else
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(sum));
#endif
  return y;
#endif
}
