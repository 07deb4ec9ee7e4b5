// C (M, N) = A (M, K) B (K, N) with balanced A on CUDA cores: windows of B in shared memory, 16 rows of A a warp.
//
// One read of B from shared memory feeds one product if the row of A is alone with its column, which bounds
// the kernel at a quarter of the arithmetic. So a window's columns that many of the 16 rows keep are multiplied
// for all of them, zeros included, from one read ("dense" columns); the rest is read element by element, and a
// balanced pattern makes it equally long for every row. `pack.py` decides which is which.
//
// A block takes ROWS rows and 64 tokens, its warps split the windows of K among SPLITS and add their sums at the
// end, in order. In a warp, quarter q of the lanes has rows 4 q to 4 q + 3 and each lane 8 tokens.
// Defines: WINDOW, SPLITS, REST_PAIRS, HALF, BIAS, ACTIVATION, PLAN_THREADS, PLAN_SHARED_BYTES (less records).
#include "element.cuh"

constexpr int WARPS = 16;
constexpr int GROUPS = WARPS / SPLITS;
constexpr int TOKENS = 64;
constexpr int COLUMN_BYTES = TOKENS * sizeof(Element);
constexpr int WINDOW_BYTES = (WINDOW + 1) * COLUMN_BYTES;  // one column of zeros, for padding
constexpr int STAGES = 2;
constexpr int STAGE_BYTES = SPLITS * WINDOW_BYTES;
constexpr int COLUMN_WORDS = COLUMN_BYTES / 16;
constexpr int REST_WORDS = 4 * REST_PAIRS * 3;  // 2 of values, 1 of places
static_assert(PLAN_THREADS == 32 * WARPS, "another number of threads than the plan's");
static_assert(PLAN_SHARED_BYTES == STAGES * STAGE_BYTES, "another amount of shared memory than the plan's");

struct MatrixArgs {
  const uint4* records;  // [group][window], see pack.py
  const int2* windows;   // [group][window]: first word of the record, pairs of dense columns
  const unsigned char* b;
  unsigned char* c;
  const float* bias;
  u64* clock;
  i64 b_row_bytes;
  i64 c_row_bytes;
  int m;
  int k;
  int tokens;            // of a row, whole groups of 16 bytes
  int window_count;
  int split_windows;     // windows of one split
  int slot_words;        // most words of a record
};

__device__ __forceinline__ int record_words(int pairs) { return 8 * pairs + REST_WORDS + (pairs + 3) / 4; }

struct Tokens {
  float x[8];
};

__device__ __forceinline__ Tokens tokens_at(const unsigned char* at) {
  Tokens t;
#if HALF
  const uint4 v = *reinterpret_cast<const uint4*>(at);
  const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) t.x[i] = to_float(static_cast<Element>(words[i / 2] >> (16 * (i & 1))));
#else
  const float4 low = *reinterpret_cast<const float4*>(at);
  const float4 high = *reinterpret_cast<const float4*>(at + 128);
  t.x[0] = low.x, t.x[1] = low.y, t.x[2] = low.z, t.x[3] = low.w;
  t.x[4] = high.x, t.x[5] = high.y, t.x[6] = high.z, t.x[7] = high.w;
#endif
  return t;
}

__device__ __forceinline__ void add_product(float* sums, float a, const Tokens& b) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sums[i] = fmaf(a, b.x[i], sums[i]);
}

__device__ __forceinline__ void multiply_dense(float (&sums)[4][8], float4 a, const Tokens& b) {
  add_product(sums[0], a.x, b);
  add_product(sums[1], a.y, b);
  add_product(sums[2], a.z, b);
  add_product(sums[3], a.w, b);
}

// One window: `record` and `b` lie in shared memory, `b` at the tokens of this lane.
__device__ __forceinline__ void multiply_window(float (&sums)[4][8], const uint4* record, int pairs,
                                                const unsigned char* b, int quarter) {
  const float4* values = reinterpret_cast<const float4*>(record) + quarter;
  const u32* columns = reinterpret_cast<const u32*>(record + 8 * pairs + REST_WORDS);
#pragma unroll 2
  for (int p = 0; p < pairs; ++p) {
    const u32 both = columns[p];
    const Tokens even = tokens_at(b + (both & 0xffff)), odd = tokens_at(b + (both >> 16));
    multiply_dense(sums, values[8 * p], even);
    multiply_dense(sums, values[8 * p + 4], odd);
  }
  const float2* rest = reinterpret_cast<const float2*>(record + 8 * pairs) + quarter;
  const u32* places = reinterpret_cast<const u32*>(record + 8 * pairs + 8 * REST_PAIRS) + quarter;
#pragma unroll
  for (int r = 0; r < 4; ++r) {
#pragma unroll
    for (int j = 0; j < REST_PAIRS; ++j) {
      const float2 two = rest[4 * (r * REST_PAIRS + j)];
      const u32 both = places[4 * (r * REST_PAIRS + j)];
      add_product(sums[r], two.x, tokens_at(b + (both & 0xffff)));
      add_product(sums[r], two.y, tokens_at(b + (both >> 16)));
    }
  }
}

// All threads: the windows of all splits at step `i` into slot `i` mod STAGES.
__device__ __forceinline__ void copy_tokens(const MatrixArgs& args, unsigned char* ring, int i, int token) {
  unsigned char* stage = ring + (i % STAGES) * STAGE_BYTES;
  const int word = threadIdx.x % COLUMN_WORDS, first = token + word * static_cast<int>(16 / sizeof(Element));
  const bool inside = first < args.tokens;
  const unsigned char* row = args.b + (inside ? first : 0) * sizeof(Element);
  constexpr int AT_ONCE = 32 * WARPS / COLUMN_WORDS;
#pragma unroll
  for (int from = 0; from < SPLITS * WINDOW; from += AT_ONCE) {
    const int place = from + threadIdx.x / COLUMN_WORDS, split = place / WINDOW, column = place % WINDOW;
    if (SPLITS * WINDOW % AT_ONCE != 0 && place >= SPLITS * WINDOW) break;
    const int k = (split * args.split_windows + i) * WINDOW + column;
    const bool there = inside && k < args.k;
    fetch_16(stage + split * WINDOW_BYTES + column * COLUMN_BYTES + word * 16,
             row + (there ? k : 0) * args.b_row_bytes, there);
  }
}

__device__ __forceinline__ void copy_record(const MatrixArgs& args, unsigned char* slot, int2 window, int lane) {
  const uint4* from = args.records + window.x;
  for (int word = lane; word < record_words(window.y); word += 32) fetch_16(slot + 16 * word, from + word, true);
}

// Rows of one warp: C, or the sums in shared memory.
__device__ __forceinline__ void store(const MatrixArgs& args, const float (&sums)[4][8], int row, int token,
                                      int lane) {
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    if (row + r >= args.m) continue;
#if BIAS
    const float bias = args.bias[row + r];
#else
    const float bias = 0.0f;
#endif
    Element out[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i] = finish(sums[r][i], bias);
    unsigned char* to = args.c + (row + r) * args.c_row_bytes;
    const uint4* words = reinterpret_cast<const uint4*>(out);
#if HALF
    const int first = token + 8 * lane;
    if (first < args.tokens) store_16(to + 2 * first, words[0]);
#else
    const int first = token + 4 * lane;
    if (first < args.tokens) store_16(to + 4 * first, words[0]);
    if (first + 32 < args.tokens) store_16(to + 4 * (first + 32), words[1]);
#endif
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 1) balanced_matrix(const __grid_constant__ MatrixArgs args) {
  extern __shared__ __align__(128) unsigned char shared[];
  const bool timed = blockIdx.x == 0 && threadIdx.x == 0;
  if (timed) args.clock[0] = clock64(), args.clock[1] = global_nanoseconds();
  let_next_launch_start();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, quarter = lane / 8;
  const int split = warp / GROUPS, group = warp % GROUPS;
  const int row_blocks = (args.m + 16 * GROUPS - 1) / (16 * GROUPS);
  const int row = (blockIdx.x % row_blocks * GROUPS + group) * 16, token = blockIdx.x / row_blocks * TOKENS;
  const bool works = row < args.m;
  const int first = split * args.split_windows;
  const int last = works ? min(first + args.split_windows, args.window_count) : first;
  const int2* windows = args.windows + static_cast<i64>(row / 16) * args.window_count;
  unsigned char* slots = shared + STAGES * STAGE_BYTES + warp * args.slot_words * 16;
  const int slot_step = WARPS * args.slot_words * 16;
  const unsigned char* b = shared + split * WINDOW_BYTES + (lane & 7) * 16;

  for (int at = threadIdx.x; at < STAGES * SPLITS * COLUMN_WORDS; at += 32 * WARPS) {
    const int place = at / COLUMN_WORDS * WINDOW_BYTES + WINDOW * COLUMN_BYTES + at % COLUMN_WORDS * 16;
    *reinterpret_cast<uint4*>(shared + place) = make_uint4(0, 0, 0, 0);
  }
  int2 window = first < last ? windows[first] : make_int2(0, 0);
  int2 next = first + 1 < last ? windows[first + 1] : make_int2(0, 0);
  if (first < last) copy_record(args, slots, window, lane);
  wait_for_last_launch();
  copy_tokens(args, shared, 0, token);

  float sums[4][8] = {};
  for (int i = 0; i < args.split_windows; ++i) {
    wait_for_fetches();
    __syncthreads();
    const int2 after = first + i + 2 < last ? windows[first + i + 2] : make_int2(0, 0);
    if (i + 1 < args.split_windows) {
      if (first + i + 1 < last) copy_record(args, slots + (i + 1) % STAGES * slot_step, next, lane);
      copy_tokens(args, shared, i + 1, token);
    }
    if (first + i < last) {
      const int stage = i % STAGES;
      multiply_window(sums, reinterpret_cast<const uint4*>(slots + stage * slot_step), window.y,
                      b + stage * STAGE_BYTES, quarter);
    }
    window = next, next = after;
  }

  // Splits hand their sums to the first through shared memory, which nobody reads any more
  __syncthreads();
  float4* parts = reinterpret_cast<float4*>(shared) + (warp % GROUPS) * 256 + lane;
  for (int from = 1; from < SPLITS; ++from) {
    float4* mine = parts + (from - 1) * GROUPS * 256;
    if (split == from) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float* s = &sums[i / 2][4 * (i & 1)];
        mine[32 * i] = make_float4(s[0], s[1], s[2], s[3]);
      }
    }
  }
  __syncthreads();
  if (split == 0) {
    for (int from = 1; from < SPLITS; ++from) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float4 add = parts[(from - 1) * GROUPS * 256 + 32 * i];
        float* s = &sums[i / 2][4 * (i & 1)];
        s[0] += add.x, s[1] += add.y, s[2] += add.z, s[3] += add.w;
      }
    }
    store(args, sums, row + 4 * quarter, token, lane & 7);
  }
  if (timed) args.clock[2] = clock64(), args.clock[3] = global_nanoseconds();
}
