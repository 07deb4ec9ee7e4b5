// PTX that C++ has no words for: addresses and clocks, overlapping launches, and with the headers below the rest.
//
// Contract: shared addresses are 32-bit. What an architecture lacks is not declared away but not to be called: barriers
// and bulk copies need sm_90a, cp.async 8.0. Below 9.0 grid dependencies are empty. With GUARD=1 a wait that lasts
// longer than two seconds traps instead of hanging the GPU.
#pragma once

using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

#ifndef GUARD
#define GUARD 0
#endif

__device__ __forceinline__ u32 shared_address(const void* pointer) {
  return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ u64 global_nanoseconds() {
  u64 now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Counts down to a trap in the guard build; nothing otherwise.
struct Patience {
#if GUARD
  u64 start = global_nanoseconds();
  __device__ __forceinline__ void spend() const {
    if (global_nanoseconds() - start > 2000000000ull) __trap();
  }
#else
  __device__ __forceinline__ void spend() const {}
#endif
};

// The value of lane 0, which the compiler then knows to be the same in all lanes.
__device__ __forceinline__ int uniform(int v) { return __shfl_sync(0xffffffff, v, 0); }

__device__ __forceinline__ int4 uniform(int4 v) {
  return make_int4(uniform(v.x), uniform(v.y), uniform(v.z), uniform(v.w));
}

// ---- launches that overlap

__device__ __forceinline__ void let_next_launch_start() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ __forceinline__ void wait_for_last_launch() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

#include "ptx_copies.cuh"
#include "ptx_hopper.cuh"
#include "ptx_memory.cuh"
