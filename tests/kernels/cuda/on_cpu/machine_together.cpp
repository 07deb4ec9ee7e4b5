// Meetings of threads, stores of the copy engine, products of a warpgroup, and rounding.
#include <cmath>
#include <cstring>

#include "machine.hpp"

namespace machine {

// ---- meetings

bool arrive(Meeting& meeting, u32 expected, const char* what) {
  if (meeting.arrived && meeting.what != what && std::strcmp(meeting.what, what)) {
    fail("threads of a warp meet at different instructions");
  }
  meeting.what = what;
  return ++meeting.arrived == expected;
}

void end_meeting(Meeting& meeting) {
  meeting.arrived = 0;
  meeting.turn += 1;
}

void meet_warp(u32 mask, const char* what, void* mine, Together together) {
  if (mask != ~0u) fail("a meeting of less than a warp is not emulated", mask);
  Meeting& meeting = current->block->warps[current->thread / 32];
  meeting.parts[current->thread % 32] = mine;
  const u32 turn = meeting.turn;
  if (arrive(meeting, 32, what)) {
    together(meeting.parts);
    end_meeting(meeting);
  }
  wait_until(what, [&] { return meeting.turn != turn; });
}

void meet_block(u32 barrier, u32 threads) {
  if (barrier >= 16) fail("a block has 16 barriers", barrier);
  Block& block = *current->block;
  Meeting& meeting = block.barriers[barrier];
  const u32 turn = meeting.turn;
  if (arrive(meeting, threads ? threads : block.live, "a barrier of the block")) end_meeting(meeting);
  wait_until("a barrier of the block", [&] { return meeting.turn != turn; });
}

void meet_cluster() {
  Cluster& cluster = *current->block->cluster;
  Meeting& meeting = cluster.meeting;
  const u32 turn = meeting.turn;
  const u32 threads = static_cast<u32>(cluster.blocks.size()) * the->launch.threads;
  if (arrive(meeting, threads, "a barrier of the cluster")) end_meeting(meeting);
  wait_until("a barrier of the cluster", [&] { return meeting.turn != turn; });
}

// ---- stores of the copy engine

namespace {

// A matrix cut into boxes, as the tests encode it in the 128 bytes of a tensor map
struct BoxMap {
  u64 base, tokens, rows, row_bytes, box_tokens, box_rows;
};

void check_fenced(const Block& block, u32 address, u32 bytes) {
  const u32 offset = address - SHARED_BASE;
  for (u32 piece = offset / 16; piece <= (offset + bytes - 1) / 16; ++piece) {
    if (block.unfenced[piece]) fail("shared memory is read through the asynchronous proxy without a fence", address);
  }
}

u32 swizzled(u32 address, u32 row_bytes) {
  if (row_bytes == 128) return address ^ (address >> 7 & 7) << 4;
  if (row_bytes == 64) return address ^ (address >> 7 & 3) << 4;
  fail("rows of a swizzled box are 64 or 128 bytes", row_bytes);
}

void store_now(const BoxStore& store) {
  const BoxMap& map = *reinterpret_cast<const BoxMap*>(store.map);
  const u32 width = static_cast<u32>(map.box_tokens * 2);
  if (store.from % 128) fail("a box in shared memory is not aligned to 128 bytes", store.from);
  for (u32 row = 0; row < map.box_rows; ++row) {
    for (u32 byte = 0; byte < width; byte += 16) {
      const u32 from = swizzled(store.from + row * width + byte, width);
      const u64 x = store.x + byte / 2, y = store.y + row;
      if (x >= map.tokens || y >= map.rows) continue;
      check_fenced(*current->block, from, 16);
      std::memcpy(global_at(map.base + y * map.row_bytes + 2 * x, 16), shared_at(from, 16), 16);
    }
  }
}

}  // namespace

void box_store(u64 map, u32 x, u32 y, u32 from) {
  step();
  const BoxStore store{map, x, y, from};
  if (the->launch.landing == AT_ONCE) {
    store_now(store);
  } else {
    current->stores.open.push_back(store);
  }
}

void commit_stores() { current->stores.commit(); }

void wait_stores(u32 unfinished) {
  auto& stores = current->stores;
  while (stores.closed.size() > unfinished) {
    for (const BoxStore& store : stores.closed.front()) store_now(store);
    stores.closed.pop_front();
    stores.finished += 1;
  }
}

// ---- products of a warpgroup

namespace {

constexpr u32 WARPGROUP = 128;

// Rows x 16 elements of an operand with the 128-byte swizzle, as fp32; rows are tokens where it is transposed.
void read_operand(u64 descriptor, bool transposed, u32 rows, bool bf16, float (*to)[16]) {
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7)) fail("a matrix descriptor without the 128-byte swizzle");
  const u32 start = static_cast<u32>(descriptor & 0x3fff) << 4;
  const u32 leading = static_cast<u32>(descriptor >> 16 & 0x3fff) << 4;
  const u32 stride = static_cast<u32>(descriptor >> 32 & 0x3fff) << 4;
  for (u32 row = 0; row < rows; ++row) {
    for (u32 k = 0; k < 16; ++k) {
      const u32 linear = transposed ? start + row / 64 * leading + k / 8 * stride + k % 8 * 128 + row % 64 * 2
                                    : start + row / 8 * stride + row % 8 * 128 + k * 2;
      const u32 address = swizzled(linear, 128);
      if (row % 8 == 0 || !transposed) check_fenced(*current->block, address, 2);
      const u16 bits = *static_cast<const u16*>(shared_at(address, 2));
      to[row][k] = bf16 ? from_bf16(bits) : from_half(bits);
    }
  }
}

void multiply_now(const Product* const (&all)[WARPGROUP]) {
  static float a[64][16], b[256][16], by_k[16][256], sums[64][256];
  const Product& one = *all[0];
  read_operand(one.a, one.a_transposed, 64, one.bf16, a);
  read_operand(one.b, one.b_transposed, one.n, one.bf16, b);
  for (u32 k = 0; k < 16; ++k) {
    for (u32 column = 0; column < one.n; ++column) by_k[k][column] = b[column][k];
  }
  for (u32 row = 0; row < 64; ++row) {
    std::memset(sums[row], 0, sizeof sums[row]);
    for (u32 k = 0; k < 16; ++k) {
      for (u32 column = 0; column < one.n; ++column) sums[row][column] += a[row][k] * by_k[k][column];
    }
  }
  for (u32 thread = 0; thread < WARPGROUP; ++thread) {
    const Product& product = *all[thread];
    if (product.a != one.a || product.b != one.b || product.n != one.n || product.keep != one.keep) {
      fail("threads of a warpgroup multiply different things");
    }
    for (u32 i = 0; i < product.n / 2; ++i) {
      const u32 row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
      const u32 column = i / 4 * 8 + thread % 4 * 2 + i % 2;
      *product.sums[i] = sums[row][column] + (product.keep ? *product.sums[i] : 0.0f);
    }
  }
}

void finish_group(Fiber* fibers) {
  const size_t count = fibers[0].products.closed.front().size();
  for (size_t i = 0; i < count; ++i) {
    const Product* all[WARPGROUP];
    for (u32 thread = 0; thread < WARPGROUP; ++thread) {
      const auto& group = fibers[thread].products.closed.front();
      if (group.size() != count) fail("threads of a warpgroup commit different numbers of products");
      all[thread] = &group[i];
    }
    multiply_now(all);
  }
  for (u32 thread = 0; thread < WARPGROUP; ++thread) {
    fibers[thread].products.closed.pop_front();
    fibers[thread].products.finished += 1;
  }
}

}  // namespace

void multiply_later(const Product& product) {
  step();
  current->products.open.push_back(product);
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
  while (current->products.finished < wanted) finish_group(fibers);
}

// ---- numbers

namespace {

float exact_from_half(u16 bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value;
  if (exponent == 31) {
    value = fraction ? NAN : INFINITY;
  } else {
    value = std::ldexp(static_cast<float>(fraction + (exponent ? 1024 : 0)), (exponent ? exponent : 1) - 25);
  }
  return bits >> 15 ? -value : value;
}

struct Halves {
  float of[65536];
  Halves() {
    for (u32 bits = 0; bits < 65536; ++bits) of[bits] = exact_from_half(static_cast<u16>(bits));
  }
};

const Halves halves;

}  // namespace

float from_half(u16 bits) { return halves.of[bits]; }

float from_bf16(u16 bits) {
  const u32 word = static_cast<u32>(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

u16 to_half(float value) {
  const u16 sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7fff;
  const float size = std::fabs(value);
  if (size >= 65520.0f) return sign | 0x7c00;
  if (size == 0.0f) return sign;
  const int exponent = std::max(std::ilogb(size), -14);
  const int steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));  // to nearest even
  return static_cast<u16>(sign | (((exponent + 15) << 10) + steps - 1024));
}

u16 to_bf16(float value) {
  if (std::isnan(value)) return 0x7fff;
  u32 word;
  std::memcpy(&word, &value, 4);
  return static_cast<u16>((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

}  // namespace machine

extern "C" unsigned short emulated_half(float value) { return machine::to_half(value); }
extern "C" unsigned short emulated_bf16(float value) { return machine::to_bf16(value); }
extern "C" float emulated_from_half(unsigned short bits) { return machine::from_half(bits); }
