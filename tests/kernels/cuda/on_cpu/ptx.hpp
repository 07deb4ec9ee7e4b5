// PTX instructions as functions: the name is the opcode with `_` for `.` and `::`, the arguments its operands.
//
// Contract: results come first, by reference; vectors and addresses are written out element by element; `_` is
// left out. An opcode that is neither here nor in ptx_tensor.hpp does not compile, which is how a new one is noticed.
// Meanings are those of the PTX ISA.
#pragma once
#include <type_traits>

#include "cuda_words.hpp"

namespace ptx {

// ---- registers

inline u32 special_ctaid_x() { return machine::block_index(); }
inline u32 special_cluster_ctarank() { return machine::cluster_rank(); }
inline u64 special_globaltimer() { return machine::now(); }

inline void mov_u32(u32& to, u32 from) { to = from; }
inline void mov_u64(u64& to, u64 from) { to = from; }
inline void mov_f32(float& to, float from) { to = from; }
inline void mad_wide_s32(u64& to, u32 a, u32 b, u64 c) {
  to = static_cast<u64>(static_cast<long long>(static_cast<int>(a)) * static_cast<int>(b)) + c;
}
inline void setp_ne_b32(bool& p, u32 a, u32 b) { p = a != b; }
inline void setp_ge_s32(bool& p, u32 a, u32 b) { p = static_cast<int>(a) >= static_cast<int>(b); }
inline void setp_lt_s32(bool& p, u32 a, u32 b) { p = static_cast<int>(a) < static_cast<int>(b); }
inline void setp_ne_and_b32(bool& p, u32 a, u32 b, bool also) { p = a != b && also; }
inline void selp_b32(u32& to, u32 a, u32 b, bool p) { to = p ? a : b; }

inline void cvt_f32_f16(float& to, u16 from) { to = machine::from_half(from); }
inline void cvt_rn_f16_f32(u16& to, float from) { to = machine::to_half(from); }
inline void cvt_rn_bf16_f32(u16& to, float from) { to = machine::to_bf16(from); }
inline void cvt_rn_f16x2_f32(u32& to, float high, float low) {
  to = static_cast<u32>(machine::to_half(high)) << 16 | machine::to_half(low);
}
inline void cvt_rn_bf16x2_f32(u32& to, float high, float low) {
  to = static_cast<u32>(machine::to_bf16(high)) << 16 | machine::to_bf16(low);
}

inline void ex2_approx_ftz_f32(float& to, float from) { to = exp2f(from); }
inline void rcp_approx_ftz_f32(float& to, float from) { to = 1.0f / from; }

inline void setmaxnreg_dec_sync_aligned_u32(u32) {}
inline void setmaxnreg_inc_sync_aligned_u32(u32) {}
inline void griddepcontrol_launch_dependents() {}
inline void griddepcontrol_wait() {}

// ---- memory

// From the place that AT checks; `from` is a shared or a global address.
template <class T>
void get(const void* from, T& a) {
  memcpy(&a, from, sizeof a);
}

template <class T, class... Rest>
void get(const void* from, T& a, Rest&... rest) {
  memcpy(&a, from, sizeof a);
  get(static_cast<const char*>(from) + sizeof a, rest...);
}

inline const void* shared_to_read(u32 from, u32 bytes) {
  machine::step();
  const void* at = machine::shared_at(from, bytes);
  machine::read_shared(from, bytes);
  return at;
}
inline const void* global_to_read(u64 from, u32 bytes) {
  machine::step();
  return machine::global_at(from, bytes);
}

#define LOADS(NAME, TYPE, AT, ADDRESS) \
  inline void NAME(TYPE& a, ADDRESS from) { get(AT(from, sizeof a), a); }
#define LOADS_2(NAME, TYPE, AT, ADDRESS) \
  inline void NAME(TYPE& a, TYPE& b, ADDRESS from) { get(AT(from, 2 * sizeof a), a, b); }
#define LOADS_4(NAME, TYPE, AT, ADDRESS)                               \
  inline void NAME(TYPE& a, TYPE& b, TYPE& c, TYPE& d, ADDRESS from) { \
    get(AT(from, 4 * sizeof a), a, b, c, d);                           \
  }

LOADS(ld_shared_b32, u32, shared_to_read, u32)
LOADS(ld_shared_s32, u32, shared_to_read, u32)
LOADS(ld_shared_u16, u16, shared_to_read, u32)
LOADS(ld_shared_f32, float, shared_to_read, u32)
LOADS_2(ld_shared_v2_b32, u32, shared_to_read, u32)
LOADS_2(ld_shared_v2_f32, float, shared_to_read, u32)
LOADS_4(ld_shared_v4_b32, u32, shared_to_read, u32)
LOADS_4(ld_shared_v4_s32, u32, shared_to_read, u32)
LOADS_4(ld_shared_v4_f32, float, shared_to_read, u32)
LOADS(ld_global_nc_f32, float, global_to_read, u64)
LOADS(ld_global_nc_s32, u32, global_to_read, u64)
LOADS(ld_global_nc_u32, u32, global_to_read, u64)
LOADS_2(ld_global_nc_v2_s32, u32, global_to_read, u64)
LOADS_2(ld_global_nc_v2_u32, u32, global_to_read, u64)
LOADS_4(ld_global_nc_v4_s32, u32, global_to_read, u64)
LOADS_4(ld_global_nc_v4_u32, u32, global_to_read, u64)
LOADS_2(ld_global_cg_v2_s32, u32, global_to_read, u64)
LOADS_4(ld_global_cg_v4_s32, u32, global_to_read, u64)
LOADS_4(ld_global_cg_v4_f32, float, global_to_read, u64)

template <class... T>
void store(u32 to, T... values) {
  const std::common_type_t<T...> all[] = {values...};
  machine::step();
  machine::write_shared(to, all, sizeof all);
}

inline void st_shared_b32(u32 to, u32 a) { store(to, a); }
inline void st_shared_s32(u32 to, u32 a) { store(to, a); }
inline void st_shared_f32(u32 to, float a) { store(to, a); }
inline void st_shared_v4_f32(u32 to, float a, float b, float c, float d) { store(to, a, b, c, d); }
inline void st_shared_v4_b32(u32 to, u32 a, u32 b, u32 c, u32 d) { store(to, a, b, c, d); }
inline void st_global_v4_b32(u64 to, u32 a, u32 b, u32 c, u32 d) {
  machine::step();
  const u32 all[4] = {a, b, c, d};
  memcpy(machine::global_at(to, 16), all, 16);
}

inline void red_release_gpu_global_add_u32(u64 to, u32 more) {
  *static_cast<u32*>(machine::global_at(to, 4)) += more;
  machine::step();
}
inline void ld_acquire_gpu_global_u32(u32& to, u64 from) {
  machine::spin();
  get(machine::global_at(from, 4), to);
}
inline void fence_acq_rel_gpu() {}
inline void fence_proxy_async_global() {}
inline void fence_proxy_async_shared_cta() { machine::fence_async_proxy(); }
inline void fence_mbarrier_init_release_cluster() {}

inline void cvt_rn_satfinite_e4m3x2_f32(u16& to, float high, float low) {
  to = static_cast<u16>(machine::to_e4m3(high) << 8 | machine::to_e4m3(low));
}

// ---- copies of a thread

inline void copy(u32 to, u64 from, u32 bytes, u32 valid) {
  if (valid > bytes) machine::fail("cp.async reads more bytes than it writes", valid);
  machine::copy_later(to, from, bytes, valid);
}

#define COPIES(NAME)                                                                     \
  inline void NAME(u32 to, u64 from, u32 bytes) { copy(to, from, bytes, bytes); }          \
  inline void NAME(u32 to, u64 from, u32 bytes, u32 valid) { copy(to, from, bytes, valid); } \
  inline void NAME(u32 to, u64 from, u32 bytes, bool none) { copy(to, from, bytes, none ? 0 : bytes); }

COPIES(cp_async_ca_shared_global)
COPIES(cp_async_cg_shared_global)
COPIES(cp_async_cg_shared_global_L2_256B)

inline void cp_async_commit_group() { machine::commit_copies(); }
inline void cp_async_wait_group(u32 unfinished) { machine::wait_copies(unfinished); }
inline void cp_async_wait_all() {
  machine::commit_copies();
  machine::wait_copies(0);
}

// ---- barriers in shared memory, clusters

inline void mbarrier_init_shared_cta_b64(u32 barrier, u32 arrivals) { machine::barrier_init(barrier, arrivals); }
inline void mbarrier_arrive_shared_cta_b64(u32 barrier) { machine::barrier_arrive(barrier); }
inline void mbarrier_arrive_shared_cluster_b64(u32 barrier) { machine::barrier_arrive(barrier); }
inline void mbarrier_arrive_expect_tx_shared_cta_b64(u32 barrier, u32 bytes) {
  machine::barrier_expect(barrier, bytes);
  machine::barrier_arrive(barrier);
}
inline void cp_async_mbarrier_arrive_noinc_shared_cta_b64(u32 barrier) {
  machine::barrier_arrive_after_copies(barrier);
}
inline void mbarrier_try_wait_parity_shared_cta_b64(bool& done, u32 barrier, u32 parity) {
  machine::barrier_wait(barrier, parity);
  done = true;
}
inline void mbarrier_test_wait_parity_shared_cta_b64(bool& done, u32 barrier, u32 parity) {
  machine::step();
  done = machine::barrier_done(barrier, parity);
}
inline void bar_sync(u32 barrier, u32 threads) { machine::meet_block(barrier, threads); }
inline void barrier_cluster_arrive_release_aligned() {}  // always followed by the wait
inline void barrier_cluster_wait_acquire_aligned() { machine::meet_cluster(); }
inline void mapa_shared_cluster_u32(u32& to, u32 address, u32 rank) {
  to = (address & 0xffffff) | (rank + 1) << 24;
}

// ---- the copy engine

inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes(u32 to, u64 from, u32 bytes, u32 barrier) {
  machine::bulk_load(to, from, bytes, barrier, 0);
}
inline void cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes_multicast_cluster(
    u32 to, u64 from, u32 bytes, u32 barrier, u32 mask) {
  machine::bulk_load(to, from, bytes, barrier, mask);
}
inline void cp_async_bulk_tensor_2d_shared_cluster_global_tile_mbarrier_complete_tx_bytes(u32 to, u64 map, u32 x, u32 y,
                                                                                          u32 barrier) {
  machine::box_load(to, map, x, y, barrier);
}
inline void cp_async_bulk_tensor_2d_global_shared_cta_bulk_group(u64 map, u32 x, u32 y, u32 from) {
  machine::box_store(map, x, y, from, false);
}
inline void cp_reduce_async_bulk_tensor_2d_global_shared_cta_add_tile_bulk_group(u64 map, u32 x, u32 y, u32 from) {
  machine::box_store(map, x, y, from, true);
}
inline void cp_async_bulk_commit_group() { machine::commit_stores(); }
inline void cp_async_bulk_wait_group_read(u32 unfinished) { machine::wait_stores(unfinished); }

}  // namespace ptx
