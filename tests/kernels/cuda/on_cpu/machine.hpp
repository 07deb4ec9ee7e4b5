// The machine: blocks, their threads as fibers, and what is on its way for each of them.
//
// Contract: one launch at a time, in one thread of the process. A fiber runs until it waits. `Fiber::ready` says
// whether it can go on. What is asynchronous lands when its wait is made, or, where a barrier is waited for, when
// nobody can go on without it.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "machine_calls.hpp"

namespace machine {

constexpr u32 MOST_WARPS = 32, MOST_GROUPS = 4;  // of a cluster; warpgroups of a block

// How much a warp knows of each warp of the cluster
struct Clock {
  u32 of[MOST_WARPS] = {};
  void join(const Clock& other);
};

constexpr u32 ALL_LANES = 32;  // an instruction of the whole warp

// A warp and its clock at one time; who in the warp, and how often its lanes have been brought together
struct Moment {
  u32 warp, lane, together;
  Clock clock;
};

// The last of one kind of access
struct Access {
  u32 warp, lane, together;
};

// Who touched a word of shared memory last; 0 is nobody
struct Word {
  u32 written;
  bool generic;  // through the generic proxy
  Access writer, reader;
  u32 reads[MOST_WARPS];       // by warp of the block
  u32 products[MOST_GROUPS];   // by warpgroup: which of the block's product reads
};

struct Copy {
  u32 to;
  u64 from;
  u32 bytes, valid;
  bool of_engine = false;  // the other proxy, as all copies of more than 16 bytes
};

// A matrix cut into boxes, as the tests encode it in the 128 bytes of a tensor map
struct BoxMap {
  u64 base, tokens, rows, row_bytes, box_tokens, box_rows, bf16;
};

struct BoxStore {
  u64 map;
  u32 x, y, from;
  bool adds;  // to what the matrix holds
  Moment moment;
  Clock fenced;
};

struct Issued {
  Product product;
  Moment moment;
  Clock fenced;
};

// Things of a thread that are waited for in groups, oldest first.
template <class T>
struct Groups {
  std::vector<T> open;
  std::deque<std::vector<T>> closed;
  u64 finished = 0;

  u64 committed() const { return finished + closed.size(); }
  void commit() {
    closed.push_back(std::move(open));
    open.clear();
  }
  bool empty() const { return open.empty() && closed.empty(); }
};

struct Block;

struct Fiber {
  Block* block = nullptr;
  u32 thread = 0;
  bool started = false, done = false, spinning = false;
  bool (*ready)(void*) = nullptr;
  void* ready_of = nullptr;
  u32 asleep = 0;  // rounds to come without it
  const char* waits_for = "";
  jmp_buf context;
  ucontext_t first;
  char* stack = nullptr;
  Groups<Copy> copies;
  Groups<BoxStore> stores;
  Groups<Issued> products;
  u32 arrivals_to_come = 0;  // by copies that have not landed
};

struct Meeting {
  const char* what = nullptr;
  u32 arrived = 0;
  u32 turn = 0;
  void* parts[32] = {};
  Clock come, gone;  // left by those who came, taken by those who go
};

struct Barrier {
  u32 arrivals = 0;
  int pending = 0;
  long long bytes = 0;  // announced and not landed; below zero where they land first
  u32 phase = 0;
  Clock come, gone;
};

struct Cluster;

struct Block {
  Cluster* cluster = nullptr;
  u32 index = 0, rank = 0;
  u32 live = 0;  // threads that have not ended
  std::vector<Fiber> fibers;
  std::vector<Meeting> warps;
  Meeting barriers[16];
  std::unordered_map<u32, Barrier> shared_barriers;
  unsigned char* shared = nullptr;
  Word* words = nullptr;
  std::vector<Clock> product_reads;
  Clock products_finished[MOST_GROUPS];
};

struct Cluster {
  std::vector<std::unique_ptr<Block>> blocks;
  Meeting meeting;
  std::vector<Clock> clocks;   // of its warps
  std::vector<Clock> fenced;  // what each knew at its last fence for the asynchronous proxy
  std::vector<std::vector<u32>> fences;  // when it made them
  std::vector<u32> together;  // how often the lanes of each have been brought together
  bool done() const;
};

// An arrival behind copies, or bytes of the copy engine
struct Landing {
  Block* block;
  u32 barrier;
  Fiber* fiber;  // null for the copy engine
  Moment moment;
  std::vector<Copy> copies;
};

struct Range {
  u64 begin, end;
};

// When copies happen: as late as they may, those of the copy engine last or first, or as soon as they may
constexpr u32 OLDEST_FIRST = 0, NEWEST_FIRST = 1, AT_ONCE = 2;

struct Launch {
  u32 blocks, threads, shared_bytes, cluster, resident;
  u32 landing;         // one of the three below
  u32 backwards;       // threads take their turns from the last to the first
  u32 seed;            // of random turns and interruptions, 0 for none; block `seed` is the slowest
  u32 range_count;
  const Range* ranges; // of global memory that the kernel may touch
};

struct Machine {
  Launch launch;
  void (*kernel)(void**);
  void** arguments;
  std::vector<std::unique_ptr<Cluster>> clusters;
  std::vector<Landing> on_their_way;
  u32 next_block = 0;
  u64 clock = 0;
  u32 random = 0;
};

extern Machine* the;
extern Fiber* current;
extern bool whole_warp;  // an instruction of all lanes is under way

u32 draw(u32 below);  // a random number
void leave();  // gives the processor back
bool is_slow(const Block& block);
bool land_something(bool slow_ones);  // of blocks that are slow or not; false where nothing is on its way
void land(Block& block, const Copy& copy, const Moment& moment);
void poison(Block& block);

// Races between warps
u32 warp_number(const Block& block, u32 thread);
Moment now_of_warp();
void bring_lanes_together();
void leave_clock(Clock& at);
void take_clock(const Clock& at);
struct Written {
  bool same;  // the bytes were there before
  bool generic;
};
void note_write(Block& block, u32 address, u32 bytes, const Moment& moment, Written how);
void note_read(Block& block, u32 address, u32 bytes, const Moment& moment);
u32 begin_product_read(Block& block);
void note_product_read(Block& block, u32 address, u32 group, u32 product, const Moment& issued);
Word* new_words();

// Shared memory as the asynchronous proxy sees it
Clock fenced_by_warp();
void check_fenced(const Block& block, u32 address, u32 bytes, const Moment& reader, const Clock& fenced);
u32 swizzled(u32 address, u32 row_bytes);

// Until `ready()`; what it needs must stay alive.
template <class Ready>
void wait_until(const char* what, Ready ready) {
  if (ready()) return;
  current->waits_for = what;
  current->ready_of = &ready;
  current->ready = [](void* of) { return (*static_cast<Ready*>(of))(); };
  leave();
}

// Everybody who is expected meets here; true for the last to come, who must then call `end_meeting`.
bool arrive(Meeting& meeting, u32 expected, const char* what);
void end_meeting(Meeting& meeting);

}  // namespace machine
