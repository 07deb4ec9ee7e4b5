// Bias, activation and rounding of two neighbouring sums to one 32-bit word of C.
//
// Contract: BIAS 0 or 1; ACTIVATION 0 none, 1 ReLU, 2 GELU (the exact form, with erf), 3 SiLU, 4 GELU with tanh; BF16
// or fp16, both rounded to nearest even. The first sum is the lower half. GLU 1: a gated unit, rows 16 i + j and
// 16 i + 8 + j of A are gate and up of row 8 i + j of C, activate(gate) * up, for j below 8. RESIDUAL 1: what is rounded
// is added to what C holds, (tokens, M), and the sum is rounded again, as two operators of a framework do.
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
#ifndef RESIDUAL
#define RESIDUAL 0
#endif

using u32 = unsigned int;

// 2^x and 1 / x by one instruction, subnormal numbers as zero
__device__ __forceinline__ float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// SiLU and GELU with tanh are x / (1 + 2^exponent): 1 + tanh(y) is 2 / (1 + exp(-2 y)).
__device__ __forceinline__ float exponent(float x) {
#if ACTIVATION == 4
  return x * (-2.3022082f + -0.10294324f * x * x);
#else
  return -1.4426950f * x;
#endif
}

__device__ __forceinline__ float activate(float x) {
#if ACTIVATION == 1
  return fmaxf(x, 0.0f);
#elif ACTIVATION == 2
  // max(x, 0) - |x| N(-|x|), with N the normal distribution. The base 2 logarithm of N(-a) is so smooth that a
  // polynomial of degree 5, fitted by the weight of its error in GELU, is within 4.4e-7. With erff, three times the
  // instructions, products of 192 kept columns took twice the time.
  const float a = fabsf(x);
  const float cubic = -0.45999244f + a * (-0.051827382f + a * (0.007084557f + a * -0.00047330928f));
  return fmaxf(x, 0.0f) - a * power_of_2(-1.0000377f + a * (-1.1507878f + a * cubic));
#elif ACTIVATION == 3 || ACTIVATION == 4
  return x * reciprocal(1.0f + power_of_2(exponent(x)));
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

__device__ __forceinline__ float widened(unsigned short x) {
#ifdef BF16
  return __uint_as_float(static_cast<u32>(x) << 16);
#else
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
#endif
}

// One element of C; two roundings of their sum, to fp32 and then to 16 bits, are one: 24 bits are twice 11 and 2 more.
__device__ __forceinline__ void store_element(unsigned char* c, unsigned short y) {
  unsigned short* to = reinterpret_cast<unsigned short*>(c);
#if RESIDUAL
  y = static_cast<unsigned short>(round_both(widened(*to) + widened(y), 0.0f));
#endif
  *to = y;
}

#if GLU
__device__ __forceinline__ u32 gated(float even, float odd, float up_even, float up_odd) {
#if ACTIVATION == 3 || ACTIVATION == 4
  // One reciprocal for both: 3 instructions of the special function unit, which bounds this, instead of 4. The
  // denominators' product stays finite; what is cut off there rounds to zero.
  const float of_even = 1.0f + power_of_2(fminf(exponent(even), 62.0f));
  const float of_odd = 1.0f + power_of_2(fminf(exponent(odd), 62.0f));
  const float both = reciprocal(of_even * of_odd);
  return round_both(even * up_even * (of_odd * both), odd * up_odd * (of_even * both));
#else
  return round_both(activate(even) * up_even, activate(odd) * up_odd);
#endif
}

// Two sums of a row of the gate, two of the row of up that it goes with, and their biases.
__device__ __forceinline__ u32 pack_gated(const float* gate, const float* up, const float* gate_bias,
                                          const float* up_bias) {
#if BIAS
  return gated(gate[0] + gate_bias[0], gate[1] + gate_bias[1], up[0] + up_bias[0], up[1] + up_bias[1]);
#else
  return gated(gate[0], gate[1], up[0], up[1]);
#endif
}

// Place among the rows of A of the gate that row `place` of C takes; the reverse for numbers of rows.
__device__ __forceinline__ int gate_of(int place) { return place / 8 * 16 + place % 8; }
__device__ __forceinline__ int gated_row(int row) { return row < 0 ? row : row / 16 * 8 + row % 8; }
#else
__device__ __forceinline__ int gate_of(int place) { return place; }
__device__ __forceinline__ int gated_row(int row) { return row; }
#endif
