// PTX of sm_90a: barriers in shared memory, the copy engine, registers of a warpgroup.
//
// Contract: every wait may be made by any number of threads.
#pragma once

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

// ---- the copy engine

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

// The box of the map from element `x` of row `y` on into shared memory, zeros where it lies beyond the matrix; counts as
// bytes on `barrier`.
__device__ __forceinline__ void load_box(u32 to, const TensorMap* map, int x, int y, u32 barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

// The box of the map from element `x` of row `y` on, out of shared memory; part of the thread's open group.
__device__ __forceinline__ void store_box(const TensorMap* map, int x, int y, u32 from) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
               "r"(from)
               : "memory");
}

// The same, added in L2 to what the matrix holds, of the type that the map names; every sum is rounded to nearest even.
__device__ __forceinline__ void add_box(const TensorMap* map, int x, int y, u32 from) {
  asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(x), "r"(y), "r"(from)
               : "memory");
}

__device__ __forceinline__ void bulk_stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Shared memory under this thread's bulk stores may be written again.
__device__ __forceinline__ void bulk_stores_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

// Makes what other threads wrote to global memory, and this one has acquired, visible to its bulk copies.
__device__ __forceinline__ void fence_async_proxy_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Barrier `id` of the 128 threads of a warpgroup.
__device__ __forceinline__ void warpgroup_sync(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

// ---- registers of a warpgroup

template <int COUNT>
__device__ __forceinline__ void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}

template <int COUNT>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}
