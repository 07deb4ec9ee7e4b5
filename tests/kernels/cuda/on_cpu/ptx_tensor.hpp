// Tensor instructions as functions, with ldmatrix and stmatrix between them and shared memory; see ptx.hpp.
//
// Contract: fragment layouts are those of mma.m16n8k16, mma.sp.m16n8k32, wgmma.m64nNk16, ldmatrix.m8n8 and
// stmatrix.m8n8 in the PTX ISA.
#pragma once
#include "ptx.hpp"

namespace ptx {

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

// The half-deep instruction: the upper 8 columns of a and rows of b are zeros.
#define MULTIPLIES_HALF(NAME, FROM)                                                                          \
  inline void NAME(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 b0, float c0, float c1,     \
                   float c2, float c3) {                                                                     \
    Multiplied mine{{&d0, &d1, &d2, &d3}, {a0, a1, 0, 0}, {b0, 0}, {c0, c1, c2, c3}};                         \
    machine::meet_warp(~0u, #NAME, &mine, multiply_together<FROM>);                                           \
  }

MULTIPLIES_HALF(mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32, machine::from_half)

struct SparselyMultiplied {
  float* d[4];
  u32 a[4], b[4];
  float c[4];
  u32 places, selector;
};

// Lane 4 g + q has kept values 2 q, 2 q + 1 and 8 more of rows g and g + 8; of four columns two are kept. The places
// of eight kept values, two bits each, are in the words of lanes 2 s and 2 s + 1 of the quad, s being the selector:
// those of row g in the lower half, of row g + 8 in the upper. What is not kept is not multiplied.
template <float (*FROM)(u16)>
void multiply_together_sparsely(void** parts) {
  float a[16][16], b[32][8], c[16][8];
  u32 place[16][16];
  const u32 selector = static_cast<SparselyMultiplied*>(parts[0])->selector;
  if (selector > 1) machine::fail("mma.sp of this depth has selectors 0 and 1", selector);
  for (int lane = 0; lane < 32; ++lane) {
    const SparselyMultiplied& part = *static_cast<SparselyMultiplied*>(parts[lane]);
    const int g = lane / 4, q = lane % 4;
    for (int i = 0; i < 8; ++i) a[g + i / 2 % 2 * 8][2 * q + i / 4 * 8 + i % 2] = FROM(part.a[i / 2] >> (i % 2 * 16));
    for (int i = 0; i < 8; ++i) b[2 * q + i / 2 * 8 + i % 2][g] = FROM(part.b[i / 2] >> (i % 2 * 16));
    for (int i = 0; i < 4; ++i) c[g + i / 2 * 8][2 * q + i % 2] = part.c[i];
    if (q / 2 != static_cast<int>(selector)) continue;
    for (int i = 0; i < 16; ++i) place[g + i / 8 * 8][q % 2 * 8 + i % 8] = part.places >> (2 * i) & 3;
  }
  for (int row = 0; row < 16; ++row) {
    for (int i = 0; i < 16; ++i) {
      if (i % 2 && place[row][i] <= place[row][i - 1]) machine::fail("the places of two kept values must ascend", row);
      const float* of = b[i / 2 * 4 + place[row][i]];
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][i] * of[column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const SparselyMultiplied& part = *static_cast<SparselyMultiplied*>(parts[lane]);
    for (int i = 0; i < 4; ++i) *part.d[i] = c[lane / 4 + i / 2 * 8][2 * (lane % 4) + i % 2];
  }
}

#define MULTIPLIES_SPARSELY(NAME, FROM)                                                                        \
  inline void NAME(float& d0, float& d1, float& d2, float& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1, \
                   u32 b2, u32 b3, float c0, float c1, float c2, float c3, u32 places, u32 selector) {         \
    SparselyMultiplied mine{{&d0, &d1, &d2, &d3}, {a0, a1, a2, a3}, {b0, b1, b2, b3}, {c0, c1, c2, c3}, places, \
                            selector};                                                                         \
    machine::meet_warp(~0u, #NAME, &mine, multiply_together_sparsely<FROM>);                                   \
  }

MULTIPLIES_SPARSELY(mma_sp_ordered_metadata_sync_aligned_m16n8k32_row_col_f32_f16_f16_f32, machine::from_half)
MULTIPLIES_SPARSELY(mma_sp_ordered_metadata_sync_aligned_m16n8k32_row_col_f32_bf16_bf16_f32, machine::from_bf16)

struct Read {
  u32 from;
  u32 words[4];
};

// Lanes 8 m to 8 m + 7 give the addresses of the rows of matrix m; a lane gets elements 2 q, 2 q + 1 of row g, or of
// column g if it is transposed.
template <bool TRANSPOSED>
void read_together(void** parts) {
  for (int m = 0; m < 4; ++m) {
    const u16* rows[8];
    for (int row = 0; row < 8; ++row) {
      rows[row] = static_cast<const u16*>(machine::shared_at(static_cast<Read*>(parts[8 * m + row])->from, 16));
    }
    for (int lane = 0; lane < 32; ++lane) {
      const int g = lane / 4, q = lane % 4 * 2;
      const u32 low = TRANSPOSED ? rows[q][g] : rows[g][q], high = TRANSPOSED ? rows[q + 1][g] : rows[g][q + 1];
      static_cast<Read*>(parts[lane])->words[m] = high << 16 | low;
    }
  }
}

#define READS_MATRICES(NAME, TRANSPOSED)                                      \
  inline void NAME(u32& a, u32& b, u32& c, u32& d, u32 from) {                \
    Read mine{from, {}};                                                      \
    shared_to_read(from, 16);                                                 \
    machine::meet_warp(~0u, #NAME, &mine, read_together<TRANSPOSED>);         \
    a = mine.words[0], b = mine.words[1], c = mine.words[2], d = mine.words[3]; \
  }

READS_MATRICES(ldmatrix_sync_aligned_m8n8_x4_shared_b16, false)
READS_MATRICES(ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16, true)

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
    for (int row = 0; row < 8; ++row) {
      machine::write_shared(static_cast<Stored*>(parts[8 * m + row])->to, matrix[row], 16);
    }
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

// fp8 has no transposed operands: keep and signs follow the descriptors.
template <class... All>
void multiply_fp8(u32 n, All&&... all) {
  const Operand given[] = {Operand(all)...};
  if (sizeof...(All) != n / 2 + 5) machine::fail("wgmma has another number of operands", n);
  const Operand* rest = given + n / 2;
  if (rest[3].number != 1 || rest[4].number != 1) machine::fail("wgmma with negated operands is not emulated");
  machine::Product product{};
  product.a = rest[0].number, product.b = rest[1].number, product.n = n, product.fp8 = true;
  product.keep = rest[2].number != 0;
  for (u32 i = 0; i < n / 2; ++i) product.sums[i] = given[i].sum;
  machine::multiply_later(product);
}
template <class... All>
void wgmma_mma_async_sync_aligned_m64n256k32_f32_e4m3_e4m3(All&&... all) {
  multiply_fp8(256, all...);
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
