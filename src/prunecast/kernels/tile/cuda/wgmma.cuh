// wgmma: 64 rows of weights times N tokens, 16 columns at a time, into fp32 registers.
//
// Contract: sums lie in the hardware's own order. Weights are K-major and tokens token-major in shared memory,
// both with the 128-byte swizzle. `keep` 0 overwrites the sums. Between
// `multiply_fence` and `multiply_wait` nothing else may touch the registers of an unfinished instruction.
#pragma once
#include "ptx.cuh"

#ifndef FP8
#define FP8 0
#endif

#ifdef BF16
#define ELEMENT "bf16"
#else
#define ELEMENT "f16"
#endif

#define R16 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define R32 \
  R16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define R64 \
  R32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define R96 \
  R64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define R128 \
  R96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define OUT4(a, i) "+f"(a[i]), "+f"(a[i + 1]), "+f"(a[i + 2]), "+f"(a[i + 3])
#define OUT16(a, i) OUT4(a, i), OUT4(a, i + 4), OUT4(a, i + 8), OUT4(a, i + 12)
#define OUT32(a, i) OUT16(a, i), OUT16(a, i + 16)
#define OUT64(a) OUT32(a, 0), OUT32(a, 32)

// N tokens, operands %W, %T (descriptors) and %P (keep) after the registers
#define WGMMA(N, REGISTERS, W, T, P)                                                               \
  "{\n.reg .pred p;\nsetp.ne.b32 p, " P ", 0;\n"                                                   \
  "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." ELEMENT "." ELEMENT " {" REGISTERS "}, " W ", " T \
  ", p, 1, 1, 0, 1;\n}\n"
#define IN3(weights, tokens, keep) "l"(weights), "l"(tokens), "r"(keep)

__device__ __forceinline__ void multiply(float (&sums)[128], u64 weights, u64 tokens, u32 keep) {
  asm volatile(WGMMA("256", R128, "%128", "%129", "%130")
               : OUT32(sums, 0), OUT32(sums, 32), OUT32(sums, 64), OUT32(sums, 96)
               : IN3(weights, tokens, keep));
}

__device__ __forceinline__ void multiply(float (&sums)[96], u64 weights, u64 tokens, u32 keep) {
  asm volatile(WGMMA("192", R96, "%96", "%97", "%98")
               : OUT32(sums, 0), OUT32(sums, 32), OUT32(sums, 64)
               : IN3(weights, tokens, keep));
}

__device__ __forceinline__ void multiply(float (&sums)[64], u64 weights, u64 tokens, u32 keep) {
  asm volatile(WGMMA("128", R64, "%64", "%65", "%66") : OUT64(sums) : IN3(weights, tokens, keep));
}

__device__ __forceinline__ void multiply(float (&sums)[32], u64 weights, u64 tokens, u32 keep) {
  asm volatile(WGMMA("64", R32, "%32", "%33", "%34") : OUT32(sums, 0) : IN3(weights, tokens, keep));
}

__device__ __forceinline__ void multiply_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void multiply_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int UNFINISHED>
__device__ __forceinline__ void multiply_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(UNFINISHED) : "memory");
}

// ---- matrix descriptors: address, leading and stride offsets in units of 16 bytes, 128-byte swizzle

constexpr u64 SWIZZLE_128 = 1ull << 62;
constexpr u64 ROWS_8 = 64ull << 32;            // 1024 bytes from 8 rows to the next 8
constexpr u64 TOKENS_64 = 512ull << 16;        // 8192 bytes from 64 tokens to the next 64
constexpr u64 WEIGHTS_NEXT_K16 = 2;            // 32 bytes along a row of weights
#if FP8
constexpr u64 SWIZZLE_32 = 3ull << 62;
constexpr u64 TOKENS_8 = 16ull << 32;          // 256 bytes from 8 tokens of a run to the next 8
constexpr u64 TOKENS_NEXT_K16 = 256;           // 128 tokens of a run
#else
constexpr u64 TOKENS_NEXT_K16 = 128;           // 16 rows of 64 tokens
#endif

__device__ __forceinline__ u64 weights_descriptor(u32 address) {
  return SWIZZLE_128 | ROWS_8 | static_cast<u64>(address >> 4);
}

__device__ __forceinline__ u64 tokens_descriptor(u32 address) {
#if FP8
  return SWIZZLE_32 | TOKENS_8 | 1ull << 16 | static_cast<u64>(address >> 4);
#else
  return SWIZZLE_128 | ROWS_8 | TOKENS_64 | static_cast<u64>(address >> 4);
#endif
}
