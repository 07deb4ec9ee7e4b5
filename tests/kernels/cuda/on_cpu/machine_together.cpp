// Meetings of threads, and stores of the copy engine.
#include <cstring>

#include "machine.hpp"

namespace machine {

// ---- meetings

bool arrive(Meeting& meeting, u32 expected, const char* what) {
  if (meeting.arrived && meeting.what != what && std::strcmp(meeting.what, what)) {
    fail("threads of a warp meet at different instructions");
  }
  meeting.what = what;
  leave_clock(meeting.come);
  return ++meeting.arrived == expected;
}

void end_meeting(Meeting& meeting) {
  meeting.arrived = 0;
  meeting.gone = meeting.come;
  meeting.come = {};
  meeting.turn += 1;
}

void meet_warp(u32 mask, const char* what, void* mine, Together together) {
  if (mask != ~0u) fail("a meeting of less than a warp is not emulated", mask);
  Meeting& meeting = current->block->warps[current->thread / 32];
  meeting.parts[current->thread % 32] = mine;
  const u32 turn = meeting.turn;
  if (arrive(meeting, 32, what)) {
    whole_warp = true;
    together(meeting.parts);
    whole_warp = false;
    if (mine == nullptr) bring_lanes_together();  // nothing is handed over: this is __syncwarp
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
  take_clock(meeting.gone);
}

void meet_cluster() {
  Cluster& cluster = *current->block->cluster;
  Meeting& meeting = cluster.meeting;
  const u32 turn = meeting.turn;
  const u32 threads = static_cast<u32>(cluster.blocks.size()) * the->launch.threads;
  if (arrive(meeting, threads, "a barrier of the cluster")) end_meeting(meeting);
  wait_until("a barrier of the cluster", [&] { return meeting.turn != turn; });
  take_clock(meeting.gone);
}

// ---- shared memory as the asynchronous proxy sees it

u32 swizzled(u32 address, u32 row_bytes) {
  if (row_bytes == 128) return address ^ (address >> 7 & 7) << 4;
  if (row_bytes == 64) return address ^ (address >> 7 & 3) << 4;
  if (row_bytes == 32) return address ^ (address >> 7 & 1) << 4;
  fail("rows of a swizzled box are 32, 64 or 128 bytes", row_bytes);
}

// ---- stores of the copy engine

namespace {

void add_8(u16* to, const u16* from, bool bf16) {
  for (int i = 0; i < 8; ++i) {
    to[i] = bf16 ? to_bf16(from_bf16(to[i]) + from_bf16(from[i])) : to_half(from_half(to[i]) + from_half(from[i]));
  }
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
      check_fenced(*current->block, from, 16, store.moment, store.fenced);
      note_read(*current->block, from, 16, store.moment);
      void* to = global_at(map.base + y * map.row_bytes + 2 * x, 16);
      if (store.adds) {
        add_8(static_cast<u16*>(to), static_cast<const u16*>(shared_at(from, 16)), map.bf16);
      } else {
        std::memcpy(to, shared_at(from, 16), 16);
      }
    }
  }
}

}  // namespace

void box_store(u64 map, u32 x, u32 y, u32 from, bool adds) {
  step();
  const BoxStore store{map, x, y, from, adds, now_of_warp(), fenced_by_warp()};
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

}  // namespace machine
