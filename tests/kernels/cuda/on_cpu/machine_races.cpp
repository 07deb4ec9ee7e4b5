// Two warps that touch the same word of shared memory, one of them writing, with nothing between them that orders it.
//
// Contract: every warp of a cluster has a clock with what it knows of every other; who arrives somewhere leaves its
// clock there, who waits takes what was left. An access that the other's clock does not know of is a race, whatever
// the order in which the threads took their turns. What a copy writes, its thread wrote when it asked for it; a product
// of a warpgroup reads until any of its warps has waited for it, and who waits for it knows what all four warps did
// before they issued it. Lanes of a warp share a clock; between an access of one and that of another there must be a
// __syncwarp or any wait of one of them, instructions of the whole warp are nobody's own.
#include <algorithm>
#include <cstdlib>

#include "machine.hpp"

namespace machine {

namespace {

constexpr u32 WORD = 4;

u32 first_word(u32 address) { return ((address & 0xffffff) - SHARED_BASE) / WORD; }

bool knows(const Clock& clock, const Clock& reader, u32 first, u32 count) {
  for (u32 warp = first; warp < first + count; ++warp) {
    if (clock.of[warp] >= reader.of[warp]) return true;
  }
  return false;
}

bool apart(const Access& access, const Moment& moment) {
  const bool other = access.lane != moment.lane || access.lane == ALL_LANES;
  return other && access.warp == moment.warp && access.together == moment.together;
}

void check_written(const Word& word, const Moment& moment, u32 address) {
  if (!word.written) return;
  if (moment.clock.of[word.writer.warp] < word.written) {
    fail("a race: shared memory is used that another warp is writing, at", address);
  }
}

void check_lanes(const Word& word, const Moment& moment, u32 address) {
  if (word.written && apart(word.writer, moment)) {
    fail("a race: shared memory is used that another lane is writing, at", address);
  }
}

}  // namespace

void Clock::join(const Clock& other) {
  for (u32 warp = 0; warp < MOST_WARPS; ++warp) of[warp] = std::max(of[warp], other.of[warp]);
}

Moment now_of_warp() {
  const u32 warp = warp_number(*current->block, current->thread);
  const Cluster& cluster = *current->block->cluster;
  return {warp, whole_warp ? ALL_LANES : current->thread % 32, cluster.together[warp], cluster.clocks[warp]};
}

void bring_lanes_together() { current->block->cluster->together[warp_number(*current->block, current->thread)] += 1; }

u32 warp_number(const Block& block, u32 thread) { return block.rank * (the->launch.threads / 32) + thread / 32; }

void leave_clock(Clock& at) {
  Clock& own = current->block->cluster->clocks[warp_number(*current->block, current->thread)];
  at.join(own);
  own.of[warp_number(*current->block, current->thread)] += 1;
}

void take_clock(const Clock& at) {
  current->block->cluster->clocks[warp_number(*current->block, current->thread)].join(at);
  bring_lanes_together();
}

void note_write(Block& block, u32 address, u32 bytes, const Moment& moment, Written how) {
  const u32 per_block = the->launch.threads / 32;
  for (u32 i = first_word(address); i <= first_word(address + bytes - 1); ++i) {
    Word& word = block.words[i];
    check_written(word, moment, address);
    if (!how.same) check_lanes(word, moment, address);
    for (u32 warp = 0; warp < per_block; ++warp) {
      if (moment.clock.of[block.rank * per_block + warp] < word.reads[warp]) {
        fail("a race: shared memory is written that another warp is reading, at", address);
      }
    }
    for (u32 group = 0; group < MOST_GROUPS; ++group) {
      const u32 first = block.rank * per_block + 4 * group;
      if (word.products[group] && !knows(moment.clock, block.product_reads[word.products[group]], first, 4)) {
        fail("a race: shared memory is written that a product is reading, at", address);
      }
    }
    if (word.reader.together && apart(word.reader, moment)) {
      fail("a race: shared memory is written that another lane is reading, at", address);
    }
    word.writer = {moment.warp, moment.lane, moment.together};
    word.written = moment.clock.of[moment.warp];
    word.generic = how.generic;
  }
}

void note_read(Block& block, u32 address, u32 bytes, const Moment& moment) {
  const u32 own = moment.warp - block.rank * (the->launch.threads / 32);
  for (u32 i = first_word(address); i <= first_word(address + bytes - 1); ++i) {
    Word& word = block.words[i];
    check_written(word, moment, address);
    check_lanes(word, moment, address);
    const bool more = apart(word.reader, moment);
    word.reader = {moment.warp, more ? ALL_LANES : moment.lane, moment.together};
    word.reads[own] = moment.clock.of[moment.warp];
  }
}

u32 begin_product_read(Block& block) {
  if (block.product_reads.empty()) block.product_reads.emplace_back();  // 0 is none
  Clock now;
  const u32 first = warp_number(block, 0);
  for (u32 warp = first; warp < first + the->launch.threads / 32; ++warp) {
    now.of[warp] = block.cluster->clocks[warp].of[warp];
  }
  block.product_reads.push_back(now);
  return static_cast<u32>(block.product_reads.size() - 1);
}

void note_product_read(Block& block, u32 address, u32 group, u32 product, const Moment& issued) {
  for (u32 i = first_word(address); i < first_word(address) + 16 / WORD; ++i) {
    check_written(block.words[i], issued, address);
    check_lanes(block.words[i], issued, address);
    block.words[i].products[group] = product;
  }
}

// ---- what the generic proxy wrote is seen through the other one behind a fence: of the reader, who knew of the write,
// or of the writer, which the reader knows of

void fence_async_proxy() {
  Cluster& cluster = *current->block->cluster;
  const u32 warp = warp_number(*current->block, current->thread);
  cluster.fenced[warp].join(cluster.clocks[warp]);
  cluster.fences[warp].push_back(cluster.clocks[warp].of[warp]);
  cluster.clocks[warp].of[warp] += 1;
}

Clock fenced_by_warp() { return current->block->cluster->fenced[warp_number(*current->block, current->thread)]; }

void check_fenced(const Block& block, u32 address, u32 bytes, const Moment& reader, const Clock& fenced) {
  for (u32 i = first_word(address); i <= first_word(address + bytes - 1); ++i) {
    const Word& word = block.words[i];
    const u32 writer = word.writer.warp;
    if (!word.generic || fenced.of[writer] >= word.written) continue;
    const auto& fences = block.cluster->fences[writer];
    const auto own = std::lower_bound(fences.begin(), fences.end(), word.written);
    if (own == fences.end() || *own >= reader.clock.of[writer]) {
      fail("shared memory is read through the asynchronous proxy without a fence", address);
    }
  }
}

Word* new_words() {
  const u32 count = the->launch.shared_bytes / WORD + 1;
  return static_cast<Word*>(std::calloc(count, sizeof(Word)));  // untouched pages cost nothing
}

}  // namespace machine
