// Bias, activation and rounding of two neighbouring sums to one 32-bit word of C.
//
// Contract: BIAS 0 or 1; ACTIVATION 0 none, 1 ReLU, 2 GELU (the exact form, with erf), 3 SiLU, 4 GELU with tanh; BF16
// or fp16, both rounded to nearest even. The first sum is the lower half. GLU 1: a gated unit, rows 16 i + j and
// 16 i + 8 + j of A are gate and up of row 8 i + j of C, activate(gate) * up, for j below 8.
#pragma once

#ifndef BIAS
#define BIAS 0
#endif
#ifndef ACTIVATION
#define ACTIVATION 0
#endif
#ifndef GLU
#define GLU 0
#endif

#ifndef ACTIVATE_INLINE
#if ACTIVATION == 2 && !BIAS  // without the addition the compiler begins with all 128 of a thread at once, and spills
#define ACTIVATE_INLINE __noinline__
#else
#define ACTIVATE_INLINE __forceinline__
#endif
#endif

using u32 = unsigned int;

__device__ ACTIVATE_INLINE float activate(float x) {
#if ACTIVATION == 1
  return fmaxf(x, 0.0f);
#elif ACTIVATION == 2
  // x times the normal distribution, whose lower half is exp(-z^2) by a polynomial in 1 / (1 + p z): Abramowitz and Stegun
  // 7.1.26, within 7.5e-8, inline in a third of the instructions of erff
  const float z = fabsf(x) * 0.70710678f;
  const float t = __fdividef(1.0f, 1.0f + 0.3275911f * z);
  const float poly = t * (0.127414796f + t * (-0.142248368f + t * (0.71070687f + t * (-0.726576f + t * 0.53070272f))));
  const float lower = x * poly * __expf(-z * z);
  return x < 0.0f ? lower : x - lower;
#elif ACTIVATION == 3
  return __fdividef(x, 1.0f + __expf(-x));
#elif ACTIVATION == 4  // 1 + tanh(y) is 2 / (1 + exp(-2 y))
  return __fdividef(x, 1.0f + __expf(-1.5957691f * x - 0.071354816f * x * x * x));
#else
  return x;
#endif
}

__device__ __forceinline__ u32 round_both(float even, float odd) {
  u32 both;
#ifdef BF16
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(odd), "f"(even));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(odd), "f"(even));
#endif
  return both;
}

__device__ __forceinline__ u32 pack(float even, float odd, float bias_even, float bias_odd) {
#if BIAS
  even += bias_even;
  odd += bias_odd;
#endif
  return round_both(activate(even), activate(odd));
}

__device__ __forceinline__ u32 pack(float even, float odd, float bias) { return pack(even, odd, bias, bias); }

#if GLU
// Two sums of a row of the gate, two of the row of up that it goes with, and their biases.
__device__ __forceinline__ u32 pack_gated(const float* gate, const float* up, const float* gate_bias,
                                          const float* up_bias) {
#if BIAS
  return round_both(activate(gate[0] + gate_bias[0]) * (up[0] + up_bias[0]),
                    activate(gate[1] + gate_bias[1]) * (up[1] + up_bias[1]));
#else
  return round_both(activate(gate[0]) * up[0], activate(gate[1]) * up[1]);
#endif
}

// Place among the rows of A of the gate that row `place` of C takes; the reverse for numbers of rows.
__device__ __forceinline__ int gate_of(int place) { return place / 8 * 16 + place % 8; }
__device__ __forceinline__ int gated_row(int row) { return row < 0 ? row : row / 16 * 8 + row % 8; }
#else
__device__ __forceinline__ int gate_of(int place) { return place; }
__device__ __forceinline__ int gated_row(int row) { return row; }
#endif
