// What a translated kernel asks of the machine. No standard containers here: every kernel compiles this.
//
// Contract: `machine*.cpp` define what is declared. A function that waits gives the processor to another thread of
// the kernel. Addresses of shared memory are 32-bit: offsets into the block's buffer behind SHARED_BASE, with the
// block's rank in the cluster, plus one, in the upper 8 bits where `mapa` put it.
#pragma once
#include <stdint.h>

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

namespace machine {

constexpr u32 SHARED_BASE = 1024;

[[noreturn]] void fail(const char* what, u64 value = 0);

u32 thread_index();
u32 block_index();
u32 thread_count();
u32 block_count();
u32 cluster_rank();
u64 now();

void* dynamic_shared();
u32 shared_address(const void* pointer);

// Checked host addresses of `bytes` bytes, aligned to them
void* shared_at(u32 address, u32 bytes);
void* global_at(u64 address, u32 bytes);
void read_shared(u32 address, u32 bytes);
void write_shared(u32 address, const void* from, u32 bytes);
void fence_async_proxy();

// A place at which this thread may be interrupted
void step();

// A poll of memory that another thread is going to change
void spin();

// Meetings. `mine` is this thread's part; the last to come does `together` with the parts of all, in order.
using Together = void (*)(void** parts);
void meet_warp(u32 mask, const char* what, void* mine, Together together);
void meet_block(u32 barrier, u32 threads);
void meet_cluster();

// Copies of this thread that form groups
void copy_later(u32 to, u64 from, u32 bytes, u32 valid);
void commit_copies();
void wait_copies(u32 unfinished);

// Barriers in shared memory
void barrier_init(u32 barrier, u32 arrivals);
void barrier_arrive(u32 barrier);
void barrier_arrive_after_copies(u32 barrier);
void barrier_expect(u32 barrier, u32 bytes);
void barrier_wait(u32 barrier, u32 parity);
bool barrier_done(u32 barrier, u32 parity);

// Copies by the copy engine
void bulk_load(u32 to, u64 from, u32 bytes, u32 barrier, u32 mask);  // mask 0: this block
void box_load(u32 to, u64 map, u32 x, u32 y, u32 barrier);  // of bytes, in rows of 32
void box_store(u64 map, u32 x, u32 y, u32 from, bool adds);
void commit_stores();
void wait_stores(u32 unfinished);

// Products of a warpgroup
struct Product {
  u64 a, b;
  u32 n;
  bool bf16, keep, a_transposed, b_transposed;
  bool fp8;  // both operands are e4m3, K-major
  bool sparse;
  u32 places, half;  // of kept values, where sparse: this thread's word, and which two lanes of four have them
  float* sums[128];
};
void multiply_later(const Product& product);
void commit_products();
void wait_products(u32 unfinished);

float from_half(u16 bits);
float from_bf16(u16 bits);
float from_e4m3(unsigned char bits);
u16 to_half(float value);
u16 to_bf16(float value);
unsigned char to_e4m3(float value);  // what is too large becomes the largest number

}  // namespace machine
