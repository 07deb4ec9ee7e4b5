// PTX for blocks of a cluster: barriers of a neighbour, copies that land in several blocks.
//
// Contract: a shared address means the same place in every block of the cluster. A block must not end while
// another may still copy into it or arrive at its barriers.
#pragma once
#include "ptx.cuh"

__device__ __forceinline__ u32 cluster_rank() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Every thread of every block, and what they did to shared memory before.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Arrival at the barrier of block `rank`. A `.release.cluster` here puts a fence on the path of every step and
// makes the kernel half as fast again; nothing is handed over, so that the plain form is enough.
__device__ __forceinline__ void barrier_arrive_at(u32 barrier, u32 rank) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// As `copy_bulk`, to the same place in every block of `mask`, counted as bytes on the barrier of each.
__device__ __forceinline__ void copy_bulk_to(u32 to, const void* from, u32 bytes, u32 barrier, u32 mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;"
      ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(static_cast<unsigned short>(mask))
      : "memory");
}
