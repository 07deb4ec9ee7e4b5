// PTX instructions as functions: the name is the opcode with `_` for `.` and `::`, the arguments its operands.
//
// Contract: results come first, by reference; vectors and addresses are written out element by element; `_` is
// left out. An opcode that is not here does not compile, which is how a new one is noticed. Meanings are those of
// the PTX ISA; fragment layouts are those of mma.m16n8k16, wgmma.m64nNk16 and stmatrix.m8n8 there.
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
LOADS_4(ld_global_cg_v4_f32, float, global_to_read, u64)

inline void put(u32 to, const void* from, u32 bytes) {
  memcpy(machine::shared_at(to, bytes), from, bytes);
  machine::wrote_shared(to, bytes);
}

template <class... T>
void store(u32 to, T... values) {
  const std::common_type_t<T...> all[] = {values...};
  machine::step();
  put(to, all, sizeof all);
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
inline void cp_async_bulk_tensor_2d_global_shared_cta_bulk_group(u64 map, u32 x, u32 y, u32 from) {
  machine::box_store(map, x, y, from);
}
inline void cp_async_bulk_commit_group() { machine::commit_stores(); }
inline void cp_async_bulk_wait_group_read(u32 unfinished) { machine::wait_stores(unfinished); }

// ---- tensor instructions of a warp

struct Multiplied {
  float* d[4];
  u32 a[4], b[2];
  float c[4];
};

template <float (*FROM)(u16)>
void multiply_together(void** parts) {
  float a[16][16], b[16][8], c[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const Multiplied& part = *static_cast<Multiplied*>(parts[lane]);
    const int g = lane / 4, q = lane % 4;
    for (int i = 0; i < 8; ++i) a[g + i / 2 % 2 * 8][2 * q + i / 4 * 8 + i % 2] = FROM(part.a[i / 2] >> (i % 2 * 16));
    for (int i = 0; i < 4; ++i) b[2 * q + i / 2 * 8 + i % 2][g] = FROM(part.b[i / 2] >> (i % 2 * 16));
    for (int i = 0; i < 4; ++i) c[g + i / 2 * 8][2 * q + i % 2] = part.c[i];
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const Multiplied& part = *static_cast<Multiplied*>(parts[lane]);
    for (int i = 0; i < 4; ++i) *part.d[i] = c[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}

#define MULTIPLIES(NAME, FROM)                                                                               \
  inline void NAME(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, \
                   float c0, float c1, float c2, float c3) {                                                 \
    Multiplied mine{{&d0, &d1, &d2, &d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3}};                      \
    machine::meet_warp(~0u, #NAME, &mine, multiply_together<FROM>);                                           \
  }

MULTIPLIES(mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32, machine::from_half)
MULTIPLIES(mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32, machine::from_bf16)

struct Stored {
  u32 to;
  u32 words[4];
};

// Matrix m of 8 x 8 goes to the rows whose addresses lanes 8 m to 8 m + 7 give.
template <bool TRANSPOSED>
void store_together(void** parts) {
  for (int m = 0; m < 4; ++m) {
    u16 matrix[8][8];
    for (int lane = 0; lane < 32; ++lane) {
      for (int i = 0; i < 2; ++i) {
        const u16 element = static_cast<u16>(static_cast<Stored*>(parts[lane])->words[m] >> (16 * i));
        const int row = lane / 4, column = lane % 4 * 2 + i;
        (TRANSPOSED ? matrix[column][row] : matrix[row][column]) = element;
      }
    }
    for (int row = 0; row < 8; ++row) put(static_cast<Stored*>(parts[8 * m + row])->to, matrix[row], 16);
  }
}

inline void stmatrix_sync_aligned_m8n8_x4_shared_b16(u32 to, u32 a, u32 b, u32 c, u32 d) {
  machine::step();
  Stored mine{to, {a, b, c, d}};
  machine::meet_warp(~0u, "stmatrix", &mine, store_together<false>);
}
inline void stmatrix_sync_aligned_m8n8_x4_trans_shared_b16(u32 to, u32 a, u32 b, u32 c, u32 d) {
  machine::step();
  Stored mine{to, {a, b, c, d}};
  machine::meet_warp(~0u, "stmatrix.trans", &mine, store_together<true>);
}

// ---- tensor instructions of a warpgroup

// An operand of any kind: the address of a sum, or a number.
struct Operand {
  float* sum = nullptr;
  u64 number = 0;
  Operand(float& place) : sum(&place) {}
  Operand(u64 value) : number(value) {}
  Operand(u32 value) : number(value) {}
  Operand(int value) : number(static_cast<u64>(value)) {}
  Operand(bool value) : number(value) {}
};

// Operands behind the sums: both descriptors, where sparse the places and their half, then keep, signs, transposed.
template <class... All>
void multiply(u32 n, bool bf16, bool sparse, All&&... all) {
  const Operand given[] = {Operand(all)...};
  if (sizeof...(All) != n / 2 + (sparse ? 9 : 7)) machine::fail("wgmma has another number of operands", n);
  const Operand* matrix = given + n / 2;
  const Operand* rest = matrix + (sparse ? 4 : 2);
  if (rest[1].number != 1 || rest[2].number != 1) machine::fail("wgmma with negated operands is not emulated");
  machine::Product product{};
  product.a = matrix[0].number, product.b = matrix[1].number, product.n = n, product.bf16 = bf16;
  product.keep = rest[0].number != 0;
  product.a_transposed = rest[3].number != 0, product.b_transposed = rest[4].number != 0;
  product.sparse = sparse;
  if (sparse) product.places = static_cast<u32>(matrix[2].number), product.half = static_cast<u32>(matrix[3].number);
  for (u32 i = 0; i < n / 2; ++i) product.sums[i] = given[i].sum;
  machine::multiply_later(product);
}

#define WARPGROUP_MULTIPLIES_AS(NAME, N, BF16, SPARSE) \
  template <class... All>                              \
  void NAME(All&&... all) {                            \
    multiply(N, BF16, SPARSE, all...);                 \
  }
#define WARPGROUP_MULTIPLIES(N)                                                                               \
  WARPGROUP_MULTIPLIES_AS(wgmma_mma_async_sync_aligned_m64n##N##k16_f32_f16_f16, N, false, false)             \
  WARPGROUP_MULTIPLIES_AS(wgmma_mma_async_sync_aligned_m64n##N##k16_f32_bf16_bf16, N, true, false)            \
  WARPGROUP_MULTIPLIES_AS(wgmma_mma_async_sp_sync_aligned_m64n##N##k32_f32_f16_f16, N, false, true)           \
  WARPGROUP_MULTIPLIES_AS(wgmma_mma_async_sp_sync_aligned_m64n##N##k32_f32_bf16_bf16, N, true, true)

WARPGROUP_MULTIPLIES(32)
WARPGROUP_MULTIPLIES(64)
WARPGROUP_MULTIPLIES(128)
WARPGROUP_MULTIPLIES(192)
WARPGROUP_MULTIPLIES(256)

inline void wgmma_fence_sync_aligned() {}
inline void wgmma_commit_group_sync_aligned() { machine::commit_products(); }
inline void wgmma_wait_group_sync_aligned(u32 unfinished) { machine::wait_products(unfinished); }

}  // namespace ptx
