// Tiles of C stored beside rows of B that DRAM brings, and nothing multiplied: what DRAM gives to mixes.
//
// Eight warps of a block walk items of 128 rows x 256 tokens: each reads `rows_read` rows of 512 bytes of its own
// and stores 16 rows of C, a quarter at a time. Every item's rows of B are other ones.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int SLOTS = 40;   // rows of 512 bytes that a warp has in shared memory
constexpr int IN_A_GROUP = 4;
constexpr int GROUPS_ON_THEIR_WAY = 8;

extern "C" __global__ void __launch_bounds__(256, 1)
mix(const char* b, char* c, int tokens, int tiles, int ranges, int rows_read, int stores, int by_rows, int tokens_first) {
  extern __shared__ __align__(128) char shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const u32 mine = (u32)__cvta_generic_to_shared(shared) + warp * SLOTS * 512 + lane * 16;
  const u64 row_bytes = 2ull * tokens;
  int asked = 0;
  for (int item = blockIdx.x; item < tiles * ranges; item += gridDim.x) {
    const int tile = tokens_first ? item / ranges : item % tiles;
    const int range = tokens_first ? item % ranges : item / tiles;
    for (int quarter = 0; quarter < 4; ++quarter) {
      for (int i = quarter * rows_read / 4; i < (quarter + 1) * rows_read / 4; ++i) {
        const u64 row = (u64)(tile * 8 + warp) * rows_read + i;
        const char* from = b + row * row_bytes + range * 512 + lane * 16;
        if (range * 256 + lane * 8 < tokens) {
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(mine + asked % SLOTS * 512), "l"(from) : "memory");
        }
        if (++asked % IN_A_GROUP == 0) {
          asm volatile("cp.async.commit_group;" ::: "memory");
          asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS_ON_THEIR_WAY) : "memory");
        }
      }
      if (!stores) continue;
      for (int i = 0; i < 4; ++i) {
        const int row = by_rows ? quarter * 4 + i : i * 4 + lane / 8;
        const int token = range * 256 + (by_rows ? lane * 8 : quarter * 64 + lane % 8 * 8);
        char* to = c + (u64)(tile * 128 + warp * 16 + row) * row_bytes + 2ull * token;
        if (token < tokens) *reinterpret_cast<uint4*>(to) = make_uint4(item * 77 + lane, row * 13 + lane, token, asked);
      }
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
}

extern "C" __global__ void spin(u64 ns) {
  u64 begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}
