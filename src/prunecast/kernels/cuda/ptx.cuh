// PTX that C++ has no words for: shared-memory barriers, asynchronous copies, fences, grid dependencies.
//
// Contract: shared addresses are 32-bit; every wait may be made by any number of threads. With GUARD=1 a
// wait that lasts longer than two seconds traps instead of hanging the GPU. Needs sm_90a.
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

// ---- barriers in shared memory

__device__ __forceinline__ void barrier_init(u32 barrier, u32 arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// One arrival, and `bytes` of bulk copies to wait for.
__device__ __forceinline__ void barrier_arrive_expect(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// One arrival, made when all cp.async of this thread so far have landed.
__device__ __forceinline__ void barrier_arrive_after_copies(u32 barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ bool barrier_try(u32 barrier, u32 parity) {
  u32 done;
  asm volatile(
      "{\n.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.b32 %0, 1, 0, p;\n}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

__device__ __forceinline__ void barrier_wait(u32 barrier, u32 parity) {
#if GUARD
  Patience patience;
  while (!barrier_try(barrier, parity)) patience.spend();
#else
  asm volatile(
      "{\n.reg .pred p;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra DONE;\n"
      "bra AGAIN;\n"
      "DONE:\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
#endif
}

// ---- copies into shared memory

// 16 bytes through L2; 0 bytes read leave 16 zeros.
__device__ __forceinline__ void copy_16(u32 to, const void* from, u32 bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

__device__ __forceinline__ void copy_16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

// 16 bytes of row `row` of a matrix through L2; 16 zeros, and nothing read, where the row is negative.
__device__ __forceinline__ void copy_16_of_row(u32 to, const void* column, int row, int row_bytes) {
  asm volatile(
      "{\n.reg .pred none;\n.reg .b64 from;\n"
      "setp.lt.s32 none, %2, 0;\n"
      "mad.wide.s32 from, %2, %3, %1;\n"
      "cp.async.cg.shared.global [%0], [from], 16, none;\n}\n" ::"r"(to),
      "l"(column), "r"(row), "r"(row_bytes)
      : "memory");
}

// 16 bytes through L2, or 16 zeros without reading if `none`.
__device__ __forceinline__ void copy_16_unless(u32 to, const void* from, bool none) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n"
      "cp.async.cg.shared.global [%0], [%1], 16, p;\n}\n" ::"r"(to),
      "l"(from), "r"(static_cast<u32>(none))
      : "memory");
}

// A contiguous run, a multiple of 16 bytes, by the copy engine; counts as bytes on `barrier`.
__device__ __forceinline__ void copy_bulk(u32 to, const void* from, u32 bytes, u32 barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// Makes what cp.async wrote visible to the tensor cores, which read through the asynchronous proxy.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A matrix as the copy engine sees it; the host encodes it.
struct alignas(64) TensorMap {
  u64 words[16];
};

// The box of the map from element `x` of row `y` on, out of shared memory; part of the thread's open group.
__device__ __forceinline__ void store_box(const TensorMap* map, int x, int y, u32 from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
               "r"(from)
               : "memory");
}

__device__ __forceinline__ void bulk_stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Shared memory under this thread's bulk stores may be written again.
__device__ __forceinline__ void bulk_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// Makes what other threads wrote to global memory, and this one has acquired, visible to its bulk copies.
__device__ __forceinline__ void fence_async_proxy_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Barrier `id` of the 128 threads of a warpgroup.
__device__ __forceinline__ void warpgroup_sync(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

__device__ __forceinline__ int4 load_shared(u32 from) {
  int4 v;
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from));
  return v;
}

__device__ __forceinline__ void store_shared(u32 to, int4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// ---- global memory

// Loads that stay where they are written, so that their latency hides behind what follows.
__device__ __forceinline__ int4 load_early(const int4* from) {
  int4 v;
  asm volatile("ld.global.nc.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

__device__ __forceinline__ int load_early(const int* from) {
  int v;
  asm volatile("ld.global.nc.s32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

__device__ __forceinline__ float load_early(const float* from) {
  float v;
  asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v) : "l"(from));
  return v;
}

// Four sums that another block has written; past the L1.
__device__ __forceinline__ float4 load_past_l1(const float4* from) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ void store_16(void* to, uint4 v) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// 16 bytes into row `row` of a matrix; nothing where the row is negative or `inside` is false.
__device__ __forceinline__ void store_16_of_row(void* column, int row, int row_bytes, uint4 v, bool inside) {
  asm volatile(
      "{\n.reg .pred some;\n.reg .b64 to;\n"
      "setp.ge.s32 some, %1, 0;\n"
      "setp.ne.and.b32 some, %7, 0, some;\n"
      "mad.wide.s32 to, %1, %2, %0;\n"
      "@some st.global.v4.b32 [to], {%3, %4, %5, %6};\n}\n" ::"l"(column),
      "r"(row), "r"(row_bytes), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(static_cast<u32>(inside))
      : "memory");
}

__device__ __forceinline__ unsigned short load_shared_2(u32 from) {
  unsigned short v;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
  return v;
}

__device__ __forceinline__ uint4 load_shared_16(u32 from) {
  uint4 v;
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ void signal_add(u32* counter) {
  asm volatile("fence.acq_rel.gpu;\nred.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

__device__ __forceinline__ u32 load_acquire(const u32* counter) {
  u32 v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(counter) : "memory");
  return v;
}

// ---- registers of a warpgroup; launches that overlap

template <int COUNT>
__device__ __forceinline__ void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

__device__ __forceinline__ void let_next_launch_start() { asm volatile("griddepcontrol.launch_dependents;"); }

__device__ __forceinline__ void wait_for_last_launch() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
