// Shared and global memory, asynchronous copies, and the barriers that count them.
//
// Contract: shared memory begins as numbers that are nothing in fp16, bf16 and fp32, and far too large as an index.
// A copy reads and writes when it lands. Barriers live beside shared memory, by their address.
#include <algorithm>
#include <cstring>

#include "machine.hpp"

namespace machine {

namespace {

constexpr u16 POISON = 0x7ffe;

Block& block_of(u32 address) {
  Block& own = *current->block;
  if (address >> 24 == 0) return own;
  const u32 rank = (address >> 24) - 1;
  if (rank >= own.cluster->blocks.size()) fail("a shared address of a block that is not in the cluster", rank);
  return *own.cluster->blocks[rank];
}

unsigned char* at(Block& block, u32 address, u32 bytes) {
  const u32 offset = (address & 0xffffff) - SHARED_BASE;
  if (offset > the->launch.shared_bytes || bytes > the->launch.shared_bytes - offset) {
    fail("a shared address outside of the block's memory", address);
  }
  return block.shared + offset;
}

Barrier& barrier_at(Block& block, u32 address) {
  const auto found = block.shared_barriers.find(address & 0xffffff);
  if (found == block.shared_barriers.end()) fail("a barrier that was never initialised", address);
  return found->second;
}

void complete_if_due(Barrier& barrier) {
  if (barrier.pending < 0) fail("more arrivals at a barrier than it waits for");
  if (barrier.pending != 0 || barrier.bytes != 0) return;
  barrier.gone.join(barrier.come);
  barrier.come = {};
  barrier.pending = static_cast<int>(barrier.arrivals);
  barrier.phase += 1;
}

void arrive_at(Barrier& barrier) {
  barrier.pending -= 1;
  complete_if_due(barrier);
}

void land_one(Landing& landing) {
  for (const Copy& copy : landing.copies) land(*landing.block, copy, landing.moment);
  Barrier& barrier = barrier_at(*landing.block, landing.barrier);
  barrier.come.join(landing.moment.clock);
  if (landing.fiber) {
    landing.fiber->arrivals_to_come -= 1;
    arrive_at(barrier);
  } else {
    for (const Copy& copy : landing.copies) barrier.bytes -= copy.bytes;
    complete_if_due(barrier);
  }
}

// What is next of every thread of the block, if it is behind this barrier
void land_behind(const Block* block, u32 barrier) {
  auto& way = the->on_their_way;
  std::vector<const Fiber*> seen;
  for (size_t i = 0; i < way.size();) {
    const bool of_thread = way[i].fiber && way[i].block == block;
    const bool next = of_thread && std::find(seen.begin(), seen.end(), way[i].fiber) == seen.end();
    if (of_thread) seen.push_back(way[i].fiber);
    if (!next || way[i].barrier != barrier) {
      ++i;
      continue;
    }
    Landing landing = std::move(way[i]);
    way.erase(way.begin() + i);
    land_one(landing);
  }
}

void send(Landing landing) {
  if (the->launch.landing == AT_ONCE) {
    land_one(landing);
  } else {
    the->on_their_way.push_back(std::move(landing));
  }
}

}  // namespace

void poison(Block& block) {
  u16* words = reinterpret_cast<u16*>(block.shared);
  std::fill(words, words + the->launch.shared_bytes / 2, POISON);
}

void* dynamic_shared() { return current->block->shared; }

u32 shared_address(const void* pointer) {
  const auto offset = static_cast<const unsigned char*>(pointer) - current->block->shared;
  if (offset < 0 || offset > the->launch.shared_bytes) fail("a pointer that is not to shared memory");
  return SHARED_BASE + static_cast<u32>(offset);
}

void* shared_at(u32 address, u32 bytes) {
  if (address % bytes) fail("a shared address that is not aligned", address);
  return at(block_of(address), address, bytes);
}

void* global_at(u64 address, u32 bytes) {
  if (address % bytes) fail("a global address that is not aligned", address);
  for (u32 i = 0; i < the->launch.range_count; ++i) {
    const Range& range = the->launch.ranges[i];
    if (address >= range.begin && address + bytes <= range.end) return reinterpret_cast<void*>(address);
  }
  fail("a global address outside of all arrays", address);
}

void read_shared(u32 address, u32 bytes) { note_read(block_of(address), address, bytes, now_of_warp()); }

void write_shared(u32 address, const void* from, u32 bytes) {
  void* to = shared_at(address, bytes);
  const bool same = std::memcmp(to, from, bytes) == 0;  // so that lanes may write it together
  std::memcpy(to, from, bytes);
  note_write(block_of(address), address, bytes, now_of_warp(), {same, true});
}

// ---- copies of a thread

void land(Block& block, const Copy& copy, const Moment& moment) {
  unsigned char* to = at(block, copy.to, copy.bytes);
  std::memcpy(to, reinterpret_cast<const void*>(copy.from), copy.valid);
  std::memset(to + copy.valid, 0, copy.bytes - copy.valid);
  note_write(block, copy.to, copy.bytes, moment, {false, copy.bytes <= 16 && !copy.of_engine});  // the copy engine is the other proxy
}

void copy_later(u32 to, u64 from, u32 bytes, u32 valid) {
  step();
  shared_at(to, bytes);
  if (from % bytes) fail("cp.async from an address that is not aligned", from);
  if (valid) global_at(from, valid == bytes ? bytes : 1), global_at(from + valid - 1, 1);
  const Copy copy{to, from, bytes, valid};
  if (the->launch.landing == AT_ONCE) {
    land(*current->block, copy, now_of_warp());
  } else {
    current->copies.open.push_back(copy);
  }
}

void commit_copies() { current->copies.commit(); }

void wait_copies(u32 unfinished) {
  auto& copies = current->copies;
  if (current->arrivals_to_come) fail("a wait for groups besides arrivals behind copies is not emulated");
  while (copies.closed.size() > unfinished) {
    for (const Copy& copy : copies.closed.front()) land(*current->block, copy, now_of_warp());
    copies.closed.pop_front();
    copies.finished += 1;
  }
}

// ---- barriers

void barrier_init(u32 barrier, u32 arrivals) {
  shared_at(barrier, 8);
  current->block->shared_barriers[barrier] = {arrivals, static_cast<int>(arrivals), 0, 0, {}, {}};
}

void barrier_arrive(u32 barrier) {
  step();
  Barrier& at = barrier_at(block_of(barrier), barrier);
  leave_clock(at.come);
  arrive_at(at);
}

void barrier_expect(u32 barrier, u32 bytes) { barrier_at(block_of(barrier), barrier).bytes += bytes; }

void barrier_arrive_after_copies(u32 barrier) {
  auto& copies = current->copies;
  if (!copies.closed.empty()) fail("an arrival behind groups of copies is not emulated");
  barrier_at(*current->block, barrier);
  current->arrivals_to_come += 1;
  const Moment moment = now_of_warp();
  Clock left;
  leave_clock(left);
  send({current->block, barrier, current, moment, std::move(copies.open)});
  copies.open.clear();
}

bool barrier_done(u32 barrier, u32 parity) {
  const Barrier& at = barrier_at(*current->block, barrier);
  if ((at.phase & 1) == parity) return false;
  take_clock(at.gone);
  return true;
}

void barrier_wait(u32 barrier, u32 parity) {
  const Barrier& at = barrier_at(*current->block, barrier);
  wait_until("a barrier in shared memory", [&] { return (at.phase & 1) != parity; });
  take_clock(at.gone);
}

// ---- the copy engine

void bulk_load(u32 to, u64 from, u32 bytes, u32 barrier, u32 mask) {
  step();
  if (to % 16 || from % 16 || bytes % 16 || bytes == 0) fail("a bulk copy that is not of 16 bytes each", bytes);
  global_at(from, 16), global_at(from + bytes - 16, 16);
  Block& own = *current->block;
  const Moment moment = now_of_warp();
  for (u32 rank = 0; rank < own.cluster->blocks.size(); ++rank) {
    if (mask ? !(mask >> rank & 1) : rank != own.rank) continue;
    Block& block = *own.cluster->blocks[rank];
    at(block, to, bytes);
    send({&block, barrier & 0xffffff, nullptr, moment, {{to & 0xffffff, from, bytes, bytes}}});
  }
}

// A box of bytes; what lies beyond the matrix is zeros.
void box_load(u32 to, u64 map_at, u32 x, u32 y, u32 barrier) {
  step();
  const BoxMap& map = *reinterpret_cast<const BoxMap*>(map_at);
  const int width = static_cast<int>(map.box_tokens), left = static_cast<int>(x);
  if (to % 256 || left % 16 || width != 32) fail("a box of other bytes than is emulated", x);
  std::vector<Copy> copies;
  for (u32 row = 0; row < map.box_rows; ++row) {
    for (int byte = 0; byte < width; byte += 16) {
      const int column = left + byte;
      const bool inside = column >= 0 && column < static_cast<int>(map.tokens) && y + row < map.rows;
      const u64 from = inside ? map.base + (y + row) * map.row_bytes + column : 0;
      if (inside) global_at(from, 16);
      const u32 at = swizzled((to & 0xffffff) + row * width + byte, width);
      copies.push_back({at, from, 16, inside ? 16u : 0u, true});
    }
  }
  send({current->block, barrier & 0xffffff, nullptr, now_of_warp(), std::move(copies)});
}

// The copies of threads behind one barrier together, those of the copy engine one by one: these come last, or, with
// NEWEST_FIRST, first and from the newest on. The copies of a thread land in their order.
bool land_something(bool slow_ones) {
  auto& way = the->on_their_way;
  const bool newest_first = the->launch.landing == NEWEST_FIRST;
  const auto is_bulk = [=](const Landing& l) { return !l.fiber && is_slow(*l.block) == slow_ones; };
  const auto is_of_thread = [=](const Landing& l) { return l.fiber && is_slow(*l.block) == slow_ones; };
  const auto of_thread = std::find_if(way.begin(), way.end(), is_of_thread);
  auto bulk = std::find_if(way.begin(), way.end(), is_bulk);
  if (newest_first && bulk != way.end()) bulk = std::find_if(way.rbegin(), way.rend(), is_bulk).base() - 1;
  if (bulk != way.end() && (newest_first || of_thread == way.end())) {
    Landing landing = std::move(*bulk);
    way.erase(bulk);
    land_one(landing);
    return true;
  }
  if (of_thread == way.end()) return false;
  land_behind(of_thread->block, of_thread->barrier);
  return true;
}

}  // namespace machine
