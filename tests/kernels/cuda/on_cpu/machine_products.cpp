// Tensor instructions of a warpgroup, dense and sparse.
//
// Contract: threads issue products and commit them in groups. The first thread that waits for a group finishes it for
// all 128, once all have committed it. Layouts are those of wgmma.mma_async m64nNk16 and, sparse or fp8, m64nNk32.
#include <cstring>

#include "machine.hpp"

namespace machine {

namespace {

constexpr u32 WARPGROUP = 128;
constexpr u32 ROWS = 64, MOST_COLUMNS = 256, MOST_DEPTH = 32;

using Operand = float[MOST_COLUMNS][MOST_DEPTH];
using Places = bool[ROWS][MOST_DEPTH];

// Rows x depth elements in swizzled shared memory, as fp32: rows of 128, 64 or 32 bytes along the depth or, transposed,
// blocks of 64 rows.
// `reading` is called with every 16 bytes.
template <class Reading>
void read_operand(u64 descriptor, bool transposed, u32 rows, u32 depth, const Product& of, Operand& to,
                  Reading reading) {
  const u32 pitch = descriptor >> 62 ? 256 >> (descriptor >> 62) : 0;
  const u32 size = of.fp8 ? 1 : 2;
  if (!pitch || (transposed && pitch != 128) || (descriptor >> 49 & 7)) {
    fail("a matrix descriptor that is not emulated", descriptor);
  }
  const u32 start = static_cast<u32>(descriptor & 0x3fff) << 4;
  const u32 leading = static_cast<u32>(descriptor >> 16 & 0x3fff) << 4;
  const u32 stride = static_cast<u32>(descriptor >> 32 & 0x3fff) << 4;
  for (u32 row = 0; row < rows; ++row) {
    for (u32 k = 0; k < depth; ++k) {
      const u32 linear = transposed ? start + row / 64 * leading + k / 8 * stride + k % 8 * pitch + row % 64 * 2
                                    : start + row / 8 * stride + row % 8 * pitch + k * size;
      const u32 address = swizzled(linear, pitch);
      if (address % 16 == 0) reading(address);
      if (of.fp8) {
        to[row][k] = from_e4m3(*static_cast<const unsigned char*>(shared_at(address, 1)));
        continue;
      }
      const u16 bits = *static_cast<const u16*>(shared_at(address, 2));
      to[row][k] = of.bf16 ? from_bf16(bits) : from_half(bits);
    }
  }
}

// 16 kept values of every row -> 32 columns. Thread 4 q + j of warp w has a word for rows 16 w + q, in its lower half,
// and 8 more; two bits for each of 8 kept values; values 0 to 7 are in j = 0 or 2, the rest in j = 1 or 3.
void spread(Operand& a, Places& multiplied, const Issued* const (&all)[WARPGROUP]) {
  for (u32 row = 0; row < ROWS; ++row) {
    float kept[16];
    std::memcpy(kept, a[row], sizeof kept);
    std::memset(a[row], 0, sizeof a[row]);
    std::memset(multiplied[row], 0, sizeof multiplied[row]);
    for (u32 i = 0, last = 0; i < 16; ++i) {
      const u32 thread = row / 16 * 32 + row % 8 * 4 + 2 * all[0]->product.half + i / 8;
      const u32 place = all[thread]->product.places >> (row / 8 % 2 * 16 + i % 8 * 2) & 3;
      if (i % 2 && place <= last) fail("the places of two kept values must ascend", row);
      a[row][i / 2 * 4 + place] = kept[i];
      multiplied[row][i / 2 * 4 + place] = true;
      last = place;
    }
  }
}

void check_equal(const Product& product, const Product& one) {
  if (product.a != one.a || product.b != one.b || product.n != one.n || product.keep != one.keep) {
    fail("threads of a warpgroup multiply different things");
  }
}

void multiply_now(const Issued* const (&all)[WARPGROUP]) {
  static Operand a, b;
  static Places multiplied;
  static float by_k[MOST_DEPTH][MOST_COLUMNS], sums[ROWS][MOST_COLUMNS];
  const Product& one = all[0]->product;
  const u32 depth = one.sparse || one.fp8 ? 32 : 16;
  Block& block = *current->block;
  const u32 group = current->thread / WARPGROUP, read = begin_product_read(block);
  const auto reading = [&](u32 address) {
    for (u32 warp = 0; warp < 4; ++warp) {
      const Issued& issued = *all[32 * warp];
      check_fenced(block, address, 16, issued.moment, issued.fenced);
      note_product_read(block, address, group, read, issued.moment);
    }
  };
  read_operand(one.a, one.a_transposed, ROWS, one.fp8 ? 32 : 16, one, a, reading);
  read_operand(one.b, one.b_transposed, one.n, depth, one, b, reading);
  std::memset(multiplied, true, sizeof multiplied);
  if (one.sparse) spread(a, multiplied, all);
  for (u32 k = 0; k < depth; ++k) {
    for (u32 column = 0; column < one.n; ++column) by_k[k][column] = b[column][k];
  }
  for (u32 row = 0; row < ROWS; ++row) {
    std::memset(sums[row], 0, sizeof sums[row]);
    for (u32 k = 0; k < depth; ++k) {
      if (!multiplied[row][k]) continue;
      for (u32 column = 0; column < one.n; ++column) sums[row][column] += a[row][k] * by_k[k][column];
    }
  }
  for (u32 thread = 0; thread < WARPGROUP; ++thread) {
    const Product& product = all[thread]->product;
    check_equal(product, one);
    for (u32 i = 0; i < product.n / 2; ++i) {
      const u32 row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const u32 column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      *product.sums[i] = sums[row][column] + (product.keep ? *product.sums[i] : 0.0f);
    }
  }
}

void finish_group(Fiber* fibers, Clock& finished) {
  const size_t count = fibers[0].products.closed.front().size();
  for (size_t i = 0; i < count; ++i) {
    const Issued* all[WARPGROUP];
    for (u32 thread = 0; thread < WARPGROUP; ++thread) {
      const auto& group = fibers[thread].products.closed.front();
      if (group.size() != count) fail("threads of a warpgroup commit different numbers of products");
      all[thread] = &group[i];
    }
    multiply_now(all);
    for (const Issued* issued : all) finished.join(issued->moment.clock);
  }
  for (u32 thread = 0; thread < WARPGROUP; ++thread) {
    fibers[thread].products.closed.pop_front();
    fibers[thread].products.finished += 1;
  }
}

}  // namespace

void multiply_later(const Product& product) {
  step();
  current->products.open.push_back({product, now_of_warp(), fenced_by_warp()});
  Clock left;
  leave_clock(left);  // what is read for this product is later than what is known of this warp by it
}

void commit_products() { current->products.commit(); }

void wait_products(u32 unfinished) {
  const u64 committed = current->products.committed();
  if (committed <= unfinished) return;
  const u64 wanted = committed - unfinished;
  Fiber* fibers = &current->block->fibers[current->thread / WARPGROUP * WARPGROUP];
  wait_until("a product of the warpgroup", [=] {
    for (u32 thread = 0; thread < WARPGROUP; ++thread) {
      if (fibers[thread].products.committed() < wanted) return false;
    }
    return true;
  });
  Clock& finished = current->block->products_finished[current->thread / WARPGROUP];
  while (current->products.finished < wanted) finish_group(fibers, finished);
  take_clock(finished);
}

}  // namespace machine
