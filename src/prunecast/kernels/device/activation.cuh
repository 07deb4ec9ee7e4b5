// Bias, activation and rounding of two neighbouring sums to one 32-bit word of C.
//
// Contract: BIAS 0 or 1; ACTIVATION 0 none, 1 ReLU, 2 GELU (the exact form, with erf); BF16 or fp16, both
// rounded to nearest even. The first sum is the lower half.
#pragma once

#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#ifndef ACTIVATE_INLINE  // or __noinline__
#define ACTIVATE_INLINE __forceinline__
#endif

using u32 = unsigned int;

__device__ ACTIVATE_INLINE float activate(float x) {
#if ACTIVATION == 1
  return fmaxf(x, 0.0f);
#elif ACTIVATION == 2
  return 0.5f * x * (1.0f + erff(x * 0.70710678f));
#else
  return x;
#endif
}

__device__ __forceinline__ u32 pack(float even, float odd, float bias_even, float bias_odd) {
#if BIAS
  even += bias_even;
  odd += bias_odd;
#endif
  u32 both;
#ifdef BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(activate(odd)), "f"(activate(even)));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(activate(odd)), "f"(activate(even)));
#endif
  return both;
}

__device__ __forceinline__ u32 pack(float even, float odd, float bias) { return pack(even, odd, bias, bias); }
