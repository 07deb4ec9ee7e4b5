// Attention without a causal mask, with a mask of keys: softmax(scale Q K^T) V over the unmasked keys of each sequence.
//
// Contract: one block per 64 queries of a head, 128 threads, SHARED_BYTES of dynamic shared memory. A warp has 16
// queries. Elements are fp16, or BF16; sums and softmax are fp32, softmax weights are rounded to the element type. Rows
// of WIDTH elements (64 or 128) are aligned to 16 bytes. Blocks of KEYS keys that are all masked are not multiplied;
// from the third block on they are not read either. If all keys of a sequence are masked, the result is zero. MASKED 0:
// no key is masked.
//
// COLUMNS 0: the result is (tokens, heads, WIDTH). COLUMNS 1: it is (heads, WIDTH, tokens), as products with sparse
// weights read it; the number of queries is then a multiple of 8. Runs from compute capability 8.0 on; from 9.0 on it
// may start before the launch that writes its inputs has ended.
#include "activation.cuh"
#include "ptx_mma.cuh"

#ifndef WIDTH
#define WIDTH 64
#endif
#ifndef KEYS  // of a block, 32 or 64
#define KEYS 32
#endif
#ifndef COLUMNS
#define COLUMNS 0
#endif
#ifndef MASKED
#define MASKED 1
#endif

constexpr int QUERIES = 64, THREADS = 128, SLOTS = 3;
constexpr int MOST_KEYS = 2048;
constexpr int ROW_BYTES = WIDTH * 2, CHUNKS = WIDTH / 8, BLOCK_BYTES = KEYS * ROW_BYTES;
constexpr int WORDS = KEYS / 32;  // of the mask of a block
constexpr int ROWS_AT_ONCE = THREADS / CHUNKS;  // a multiple of 8, so that all have the swizzle of the first
constexpr int SLOT_AT = QUERIES * ROW_BYTES;  // after the queries: pipeline stages (slots) of keys and values
constexpr int SLOT_BYTES = 2 * BLOCK_BYTES;
constexpr int MASK_AT = SLOT_AT + SLOTS * SLOT_BYTES;  // a bit for each key
constexpr int SHARED_BYTES = MASK_AT + MOST_KEYS / 8;
constexpr int BLOCKS_PER_SM = (WIDTH == 64 ? 6 : 3) - KEYS / 64 * (WIDTH == 64 ? 2 : 1);
#define MINUS_INFINITY (-__uint_as_float(0x7f800000u))
constexpr int COLUMN_BYTES = 2 * QUERIES + 16;  // 16 bytes of padding avoid bank conflicts between rows

static_assert(KEYS == 32 || KEYS == 64, "words of the mask");
static_assert(WIDTH == 64 || WIDTH == 128, "rows of whole swizzled lines");
static_assert(WIDTH * COLUMN_BYTES <= SLOTS * SLOT_BYTES, "the transposed result has its place in the slots");
#ifdef HOST_SHARED_BYTES
static_assert(SHARED_BYTES == HOST_SHARED_BYTES, "the host gives a block another amount of shared memory");
#endif

struct HeadRows {  // rows of Q, K or V
  const unsigned char* from;
  i64 sequence_bytes;
  i64 head_bytes;
  int row_bytes;
  int unused;
};

struct AttentionArgs {
  HeadRows queries_of;
  HeadRows keys_of;
  HeadRows values_of;
  unsigned char* out;
  const unsigned char* mask;  // (sequences, keys) bytes, zero for masked keys
  i64 mask_row_bytes;
  i64 out_row_bytes;
  int heads;
  int heads_per_key_head;
  int queries;
  int keys;
  int query_blocks;  // of a head
  float scale;       // times the base 2 logarithm of e
};

// The queries of a block. Recomputed where needed, to save registers.
struct Work {
  int first, head, sequence;

  __device__ __forceinline__ explicit Work(const AttentionArgs& args) {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    first = block % args.query_blocks * QUERIES;
    head = block / args.query_blocks % args.heads;
    sequence = block / args.query_blocks / args.heads;
  }
};

// Swizzled offset of a 16-byte chunk of a row: 8 rows map to 8 different bank groups (no conflicts).
__device__ __forceinline__ int place_of(int row, int chunk) { return row * ROW_BYTES + (chunk ^ row % 8) * 16; }

__device__ __forceinline__ void read_matrices(u32 (&words)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

__device__ __forceinline__ void read_transposed(u32 (&words)[4], u32 from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(from)
               : "memory");
}

// Swizzled offset of this thread's 16 bytes in the first group of rows that the block copies.
__device__ __forceinline__ u32 own_place() { return place_of(threadIdx.x / CHUNKS, threadIdx.x % CHUNKS); }

// Copies COUNT rows from `first` on, and zeros from row `rows` on. `column` points to this thread's 16 bytes of row 0.
template <int COUNT>
__device__ __forceinline__ void copy_rows(u32 to, const unsigned char* column, int row_bytes, int first, int rows) {
#pragma unroll
  for (int i = 0; i < COUNT / ROWS_AT_ONCE; ++i) {
    const int row = first + threadIdx.x / CHUNKS + i * ROWS_AT_ONCE;
    copy_16_of_row(to + own_place() + i * ROWS_AT_ONCE * ROW_BYTES, column, row < rows ? row : -1, row_bytes);
  }
}

__device__ __forceinline__ const unsigned char* column_of(const HeadRows& of, int sequence, int head) {
  return of.from + sequence * of.sequence_bytes + head * of.head_bytes + threadIdx.x % CHUNKS * 16;
}

// The keys and values of one head of a sequence, with the mask of its keys.
struct Memory {
  const AttentionArgs& args;
  const unsigned char* keys;
  const unsigned char* values;
  u32 base;
  int blocks;

  __device__ __forceinline__ Memory(const AttentionArgs& of, const Work& work, u32 shared)
      : args(of), base(shared), blocks((of.keys + KEYS - 1) / KEYS) {
    const int key_head = work.head / args.heads_per_key_head;
    keys = column_of(args.keys_of, work.sequence, key_head);
    values = column_of(args.values_of, work.sequence, key_head);
  }

  __device__ __forceinline__ u32 keys_at(int slot) const { return base + SLOT_AT + slot * SLOT_BYTES; }
  __device__ __forceinline__ u32 values_at(int slot) const { return keys_at(slot) + BLOCK_BYTES; }

  __device__ __forceinline__ void copy(int block, int slot) const {
    copy_rows<KEYS>(keys_at(slot), keys, args.keys_of.row_bytes, block * KEYS, args.keys);
    copy_rows<KEYS>(values_at(slot), values, args.values_of.row_bytes, block * KEYS, args.keys);
  }

  // Packs the mask of a sequence into bits, 32 keys per word; all words of a block of keys are written.
  __device__ __forceinline__ void keep_mask(int sequence) const {
    for (int word = threadIdx.x / 32; word < blocks * WORDS; word += THREADS / 32) {
      const int key = word * 32 + threadIdx.x % 32;
#if MASKED
      const bool counts = key < args.keys && args.mask[sequence * args.mask_row_bytes + key] != 0;
#else
      const bool counts = key < args.keys;
#endif
      const u32 bits = __ballot_sync(0xffffffff, counts);
      if (threadIdx.x % 32 == 0) store_shared_4(base + MASK_AT + 4 * word, bits);
    }
  }

  __device__ __forceinline__ u32 mask_word(int word) const { return load_shared_4(base + MASK_AT + 4 * word); }
  __device__ __forceinline__ bool counts(int block) const {
    return mask_word(block * WORDS) != 0 || (WORDS == 2 && mask_word(block * WORDS + 1) != 0);
  }

  // Returns the next block with an unmasked key, or `blocks`.
  __device__ __forceinline__ int next(int block) const {
    while (block < blocks && !counts(block)) block += 1;
    return block;
  }
};

// Unnormalised result of 16 queries; a thread has rows lane / 4 and lane / 4 + 8.
struct Sums {
  float values[CHUNKS][4] = {};
  float largest[2] = {MINUS_INFINITY, MINUS_INFINITY};
  float weights[2] = {0.0f, 0.0f};  // sum of the weights of the keys that this thread has processed
};

__device__ __forceinline__ void clear_masked(float (&scores)[KEYS / 8][4], const Memory& memory, int block, int lane) {
#pragma unroll
  for (int word = 0; word < WORDS; ++word) {
    const u32 bits = memory.mask_word(block * WORDS + word);
    if (bits == 0xffffffffu) continue;
    const u32 own = bits >> lane % 4 * 2;
#pragma unroll
    for (int group = 0; group < 4; ++group) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((own >> (group * 8 + i % 2) & 1) == 0) scores[word * 4 + group][i] = MINUS_INFINITY;
      }
    }
  }
}

// Scores of 16 queries and a block of keys. The next pair of chunks of a row differs in address bits 5 to 7 (xor).
__device__ __forceinline__ void multiply_keys(float (&scores)[KEYS / 8][4], u32 queries, u32 keys, int warp, int lane) {
  const u32 own_queries = queries + place_of(warp * 16 + lane % 16, lane / 16);
  const u32 own_keys = keys + place_of(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int k16 = 0; k16 < WIDTH / 16; ++k16) {
    u32 q[4];
    read_matrices(q, own_queries ^ k16 * 32);
#pragma unroll
    for (int pair = 0; pair < KEYS / 16; ++pair) {
      u32 k[4];
      read_matrices(k, (own_keys ^ k16 * 32) + pair * 16 * ROW_BYTES);
      mma_16_8_16(scores[2 * pair], q[0], q[1], q[2], q[3], k[0], k[1]);
      mma_16_8_16(scores[2 * pair + 1], q[0], q[1], q[2], q[3], k[2], k[3]);
    }
  }
}

// Online softmax: converts scores to weights, and rescales the sums so far to the new maximum.
__device__ __forceinline__ void weigh(Sums& sums, float (&scores)[KEYS / 8][4], float scale) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float largest = sums.largest[row];
#pragma unroll
    for (int group = 0; group < KEYS / 8; ++group) {
      largest = fmaxf(largest, fmaxf(scores[group][2 * row], scores[group][2 * row + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, 2));
    const float shift = largest * scale;
    if (__any_sync(0xffffffff, largest > sums.largest[row])) {  // otherwise all factors are 1
      const float change = power_of_2(sums.largest[row] * scale - shift);
      sums.weights[row] *= change;
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        sums.values[chunk][2 * row] *= change;
        sums.values[chunk][2 * row + 1] *= change;
      }
      sums.largest[row] = largest;
    }
#pragma unroll
    for (int group = 0; group < KEYS / 8; ++group) {
#pragma unroll
      for (int i = 2 * row; i < 2 * row + 2; ++i) {
        scores[group][i] = power_of_2(scores[group][i] * scale - shift);
        sums.weights[row] += scores[group][i];
      }
    }
  }
}

__device__ __forceinline__ void multiply_values(Sums& sums, const float (&weights)[KEYS / 8][4], u32 values, int lane) {
  const u32 own_values = values + place_of(lane % 16, lane / 16);
#pragma unroll
  for (int k16 = 0; k16 < KEYS / 16; ++k16) {
    const float(&low)[4] = weights[2 * k16];
    const float(&high)[4] = weights[2 * k16 + 1];
    const u32 w[4] = {round_both(low[0], low[1]), round_both(low[2], low[3]), round_both(high[0], high[1]),
                      round_both(high[2], high[3])};
#pragma unroll
    for (int pair = 0; pair < CHUNKS / 2; ++pair) {
      u32 v[4];
      read_transposed(v, (own_values ^ pair * 32) + k16 * 16 * ROW_BYTES);
      mma_16_8_16(sums.values[2 * pair], w[0], w[1], w[2], w[3], v[0], v[1]);
      mma_16_8_16(sums.values[2 * pair + 1], w[0], w[1], w[2], w[3], v[2], v[3]);
    }
  }
}

__device__ __forceinline__ void divide(Sums& sums) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float weights = sums.weights[row];
    weights += __shfl_xor_sync(0xffffffff, weights, 1);
    weights += __shfl_xor_sync(0xffffffff, weights, 2);
    const float factor = weights > 0.0f ? reciprocal(weights) : 0.0f;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      sums.values[chunk][2 * row] *= factor;
      sums.values[chunk][2 * row + 1] *= factor;
    }
  }
}

#if COLUMNS
// Stores all queries of the block, transposed in the slots, which all warps have read. A word has two queries.
__device__ __forceinline__ void store(const AttentionArgs& args, const Sums& sums, u32 base, int warp, int lane) {
  const Work work(args);
  __syncthreads();
  const u32 staged = base + SLOT_AT;
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const u32 own = round_both(sums.values[chunk][2 * half], sums.values[chunk][2 * half + 1]);
      const u32 other = __shfl_xor_sync(0xffffffff, own, 4);
      const bool odd = (lane / 4 & 1) != 0;
      const u32 word = odd ? (other >> 16) | (own & 0xffff0000u) : (own & 0xffffu) | (other << 16);
      const int feature = chunk * 8 + lane % 4 * 2 + odd, query = warp * 16 + half * 8 + (lane / 4 & ~1);
      store_shared_4(staged + feature * COLUMN_BYTES + 2 * query, word);
    }
  }
  __syncthreads();
  const i64 token = static_cast<i64>(work.sequence) * args.queries + work.first;
#pragma unroll
  for (int i = 0; i < WIDTH * 8 / THREADS; ++i) {
    const int at = threadIdx.x + i * THREADS, feature = at / 8, query = at % 8 * 8;
    if (work.first + query < args.queries) {
      store_16(args.out + (work.head * WIDTH + feature) * args.out_row_bytes + 2 * (token + query),
               load_shared_16(staged + feature * COLUMN_BYTES + 2 * query));
    }
  }
}
#else
// Stores the result through the shared memory of the queries.
__device__ __forceinline__ void store(const AttentionArgs& args, const Sums& sums, u32 base, int warp, int lane) {
  const Work work(args);
  __syncthreads();  // if all keys are masked, copies of other threads may still be arriving
#pragma unroll
  for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      store_shared_4(base + place_of(warp * 16 + half * 8 + lane / 4, chunk) + lane % 4 * 4,
                     round_both(sums.values[chunk][2 * half], sums.values[chunk][2 * half + 1]));
    }
  }
  __syncwarp();
#pragma unroll 2  // all at once would need more than 80 registers
  for (int i = 0; i < CHUNKS / 2; ++i) {
    const int at = lane + i * 32, query = warp * 16 + at / CHUNKS, chunk = at % CHUNKS;
    if (work.first + query < args.queries) {
      const i64 token = work.sequence * args.queries + work.first + query;
      store_16(args.out + token * args.out_row_bytes + work.head * ROW_BYTES + chunk * 16,
               load_shared_16(base + place_of(query, chunk)));
    }
  }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_PER_SM) attend(const __grid_constant__ AttentionArgs args) {
  extern __shared__ __align__(1024) unsigned char shared[];
  const u32 base = shared_address(shared);
  const Work work(args);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Memory memory(args, work, base);
  let_next_launch_start();
  wait_for_last_launch();
  copy_rows<QUERIES>(base, column_of(args.queries_of, work.sequence, work.head), args.queries_of.row_bytes, work.first, args.queries);
  memory.copy(0, 0);  // the first two blocks are rarely masked: copy them before the mask is known
  commit_copies();
  memory.copy(1, 1);
  commit_copies();
  memory.keep_mask(work.sequence);
  __syncthreads();
  int block = memory.next(0), after = memory.next(block + 1);
  if (block != 0 || after != 1) {
    wait_copies<0>();  // earlier copies of this thread to the same addresses
    if (block < memory.blocks) memory.copy(block, 0);
    if (after < memory.blocks) memory.copy(after, 1);
    commit_copies();
    wait_copies<0>();
  }
  Sums sums;
  int slot = 0;
#pragma unroll 1
  while (block < memory.blocks) {
    wait_copies<1>();
    __syncthreads();  // all threads' copies have arrived, and all warps have read the slot after the next
    const int later = memory.next(after + 1);
    if (later < memory.blocks) memory.copy(later, slot == 0 ? 2 : slot - 1);
    commit_copies();
    float scores[KEYS / 8][4] = {};
    multiply_keys(scores, base, memory.keys_at(slot), warp, lane);
    clear_masked(scores, memory, block, lane);
    weigh(sums, scores, args.scale);
    multiply_values(sums, scores, memory.values_at(slot), lane);
    block = after;
    after = later;
    slot = slot == SLOTS - 1 ? 0 : slot + 1;
  }
  wait_copies<0>();
  divide(sums);
  store(args, sums, base, warp, lane);
}
