// Threads of a kernel as fibers, and who runs next.
//
// Contract: fibers are entered in the order of their numbers, the other way round, or from a random one on, until
// nobody can go on; then something that is on its way lands, and if nothing is, the launch ends as a deadlock. The answer of
// `run_launch` is null or one line that says what went wrong.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <map>
#include <stdexcept>
#include <string>

#include "machine.hpp"

namespace machine {

Machine* the = nullptr;
Fiber* current = nullptr;
bool whole_warp = false;

namespace {

constexpr size_t STACK_BYTES = 128 * 1024;
constexpr size_t SHARED_ALIGN = 1024;
jmp_buf scheduler;
std::string message;
std::vector<char*> free_stacks;
std::vector<unsigned char*> free_shared;

char* take_stack() {
  if (!free_stacks.empty()) {
    char* stack = free_stacks.back();
    free_stacks.pop_back();
    return stack;
  }
  void* stack = mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED) fail("no memory for stacks");
  return static_cast<char*>(stack);
}

void body() {
  the->kernel(the->arguments);
  Fiber& me = *current;
  if (!me.stores.empty()) fail("a thread ends before its bulk stores have been read");
  if (!me.products.empty()) fail("a thread ends before its products are complete");
  me.done = true;
  me.block->live -= 1;
  if (me.block->live == 0) {
    for (const Landing& landing : the->on_their_way) {
      if (landing.block == me.block) fail("a block ends while copies into its shared memory are on their way");
    }
  }
  leave();
}

void enter(Fiber& fiber) {
  current = &fiber;
  fiber.ready = nullptr;
  if (_setjmp(scheduler) == 0) {
    if (fiber.started) _longjmp(fiber.context, 1);
    fiber.started = true;
    fiber.stack = take_stack();
    getcontext(&fiber.first);
    fiber.first.uc_stack.ss_sp = fiber.stack;
    fiber.first.uc_stack.ss_size = STACK_BYTES;
    fiber.first.uc_link = nullptr;
    makecontext(&fiber.first, body, 0);
    setcontext(&fiber.first);
  }
  if (fiber.done && fiber.stack) {
    free_stacks.push_back(fiber.stack);
    fiber.stack = nullptr;
  }
  current = nullptr;
}

unsigned char* take_shared(size_t bytes) {
  if (free_shared.empty()) return static_cast<unsigned char*>(aligned_alloc(SHARED_ALIGN, bytes));
  unsigned char* shared = free_shared.back();
  free_shared.pop_back();
  return shared;
}

size_t shared_room() { return (the->launch.shared_bytes / SHARED_ALIGN + 1) * SHARED_ALIGN; }

void start_cluster() {
  auto cluster = std::make_unique<Cluster>();
  cluster->fenced.resize(the->launch.cluster * the->launch.threads / 32);
  cluster->fences.resize(cluster->fenced.size());
  cluster->together.assign(the->launch.cluster * the->launch.threads / 32, 1);
  cluster->clocks.resize(the->launch.cluster * the->launch.threads / 32);
  for (size_t warp = 0; warp < cluster->clocks.size(); ++warp) cluster->clocks[warp].of[warp] = 1;
  for (u32 rank = 0; rank < the->launch.cluster; ++rank) {
    auto block = std::make_unique<Block>();
    block->cluster = cluster.get();
    block->index = the->next_block++;
    block->rank = rank;
    block->live = the->launch.threads;
    block->warps.resize(the->launch.threads / 32);
    block->shared = take_shared(shared_room());
    block->words = new_words();
    poison(*block);
    block->fibers.resize(the->launch.threads);
    for (u32 thread = 0; thread < the->launch.threads; ++thread) {
      block->fibers[thread].block = block.get();
      block->fibers[thread].thread = thread;
    }
    cluster->blocks.push_back(std::move(block));
  }
  the->clusters.push_back(std::move(cluster));
}

void give_back(Block& block) {
  free_shared.push_back(block.shared);
  free(block.words);
}

void fill_up() {
  auto& clusters = the->clusters;
  for (size_t i = 0; i < clusters.size();) {
    if (!clusters[i]->done()) {
      ++i;
      continue;
    }
    for (auto& block : clusters[i]->blocks) give_back(*block);
    clusters.erase(clusters.begin() + i);
  }
  while (the->next_block < the->launch.blocks && clusters.size() * the->launch.cluster < the->launch.resident) {
    start_cluster();
  }
}

bool run_block(Block& block) {
  bool moved = false;
  const u32 count = block.live ? the->launch.threads : 0;
  const u32 first = the->launch.seed && count ? draw(count) : 0;
  const bool backwards = the->launch.seed ? draw(2) : the->launch.backwards;
  for (u32 i = 0; i < count; ++i) {
    const u32 place = (i + first) % count;
    Fiber& fiber = block.fibers[backwards ? count - 1 - place : place];
    if (fiber.asleep) {
      fiber.asleep -= 1;
      moved = true;
      continue;
    }
    if (fiber.done || (fiber.ready && !fiber.ready(fiber.ready_of))) continue;
    const bool polled = fiber.spinning;
    fiber.spinning = false;
    enter(fiber);
    moved |= !(polled && fiber.spinning);
  }
  return moved;
}

void tell_deadlock() {
  std::map<std::string, u32> waiting;
  for (auto& cluster : the->clusters) {
    for (auto& block : cluster->blocks) {
      for (Fiber& fiber : block->fibers) {
        if (!fiber.done) waiting[fiber.spinning ? "a value in memory" : fiber.waits_for] += 1;
      }
    }
  }
  message = "deadlock:";
  for (auto& [what, count] : waiting) message += " " + std::to_string(count) + " threads wait for " + what + ";";
}

bool run_round(bool slow_ones) {
  bool moved = false;
  for (auto& cluster : the->clusters) {
    for (auto& block : cluster->blocks) {
      if (is_slow(*block) == slow_ones && message.empty()) moved |= run_block(*block);
    }
  }
  return moved || !message.empty();
}

// The slow block has its turn, and what it copies lands, when the others cannot go on without it.
void run() {
  while (message.empty()) {
    fill_up();
    if (the->clusters.empty()) return;
    if (!run_round(false) && !land_something(false) && !run_round(true) && !land_something(true)) tell_deadlock();
  }
}

void give_back_all() {
  for (auto& cluster : the->clusters) {
    for (auto& block : cluster->blocks) {
      give_back(*block);
      for (Fiber& fiber : block->fibers) {
        if (fiber.stack) free_stacks.push_back(fiber.stack);
      }
    }
  }
}

}  // namespace

bool Cluster::done() const {
  for (auto& block : blocks) {
    if (block->live) return false;
  }
  return true;
}

void leave() {
  if (_setjmp(current->context) == 0) _longjmp(scheduler, 1);
}

bool is_slow(const Block& block) { return the->launch.seed && block.index == the->launch.seed % the->launch.blocks; }

u32 draw(u32 below) {
  the->random = the->random * 1664525 + 1013904223;
  return (the->random >> 8) % below;
}

void step() {
  if (!the->launch.seed || draw(8)) return;
  current->asleep = draw(10);
  leave();
}

void spin() {
  current->spinning = true;
  leave();
}

[[noreturn]] void fail(const char* what, u64 value) {
  char line[256];
  if (current) {
    snprintf(line, sizeof line, "block %u, thread %u: %s (%llu)", current->block->index, current->thread, what, value);
  } else {
    snprintf(line, sizeof line, "%s (%llu)", what, value);
  }
  if (message.empty()) message = line;
  if (current) _longjmp(scheduler, 1);
  throw std::runtime_error(line);
}

u32 thread_index() { return current->thread; }
u32 block_index() { return current->block->index; }
u32 thread_count() { return the->launch.threads; }
u32 block_count() { return the->launch.blocks; }
u32 cluster_rank() { return current->block->rank; }
u64 now() { return ++the->clock; }

}  // namespace machine

extern "C" const char* run_launch(const machine::Launch* launch, void (*kernel)(void**), void** arguments) {
  using namespace machine;
  Machine machine{*launch, kernel, arguments, {}, {}, 0, 0, launch->seed};
  the = &machine;
  message.clear();
  whole_warp = false;
  try {
    if (launch->threads % 32 || launch->blocks % launch->cluster) fail("threads must fill warps and blocks clusters");
    if (launch->threads * launch->cluster > 1024) fail("too many threads", launch->threads);
    run();
  } catch (const std::exception&) {
  }
  give_back_all();
  the = nullptr;
  for (unsigned char* shared : free_shared) free(shared);  // the next launch may want another size
  free_shared.clear();
  return message.empty() ? nullptr : message.c_str();
}
