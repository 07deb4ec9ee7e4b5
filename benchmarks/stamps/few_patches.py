"""Stamps of `gpu_trace_few`: the first and the last warp of blocks of the balanced and the small-n kernel."""

from benchmarks.stamps.sources import Patch, Patches, after, before

__all__ = ["ENDS", "NAMES", "PATCHES", "PLACES", "WORDS"]

WORDS = 32
"""Stamps of a warp."""
NAMES = {
    "entry_ns": 0,
    "entry": 1,
    "sm": 2,
    "told": 3,
    "spread": 5,
    "end": 28,
}
"""Places among them. `told` is behind the wait for the launch before, `spread` where B is spread or rows are
asked for; 8 is behind the barrier, or where the first k16 has come; 26 behind the last k16, 27 behind the
barrier, or before the sums over lanes. In small-n 9 to 14 are where the next k16s have come. With more tokens
of balanced 8 + 4 s, s below 3, is where step s is waited for, then where it has come, where the next one
has been asked for and where it has been multiplied; 20 behind the last step, 26 where sums are handed over,
27 where they are added."""

MACRO = """
#define STAMP_TO(i, value) \\
  do { \\
    const unsigned w_ = threadIdx.x / 32; \\
    if (threadIdx.x % 32 == 0 && (w_ == 0 || w_ == blockDim.x / 32 - 1)) \\
      (args.clock + 4 + 64 * blockIdx.x + (w_ ? 32 : 0))[i] = (value); \\
  } while (0)
__device__ __forceinline__ unsigned stamp_clock() {
  unsigned t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t) :: "memory");
  return t;
}
__device__ __forceinline__ unsigned long long stamp_ns() {
  unsigned long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t) :: "memory");
  return t;
}
__device__ __forceinline__ unsigned stamp_sm() {
  unsigned t;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(t));
  return t;
}
#define STAMP(i) STAMP_TO(i, stamp_clock())
"""
BEGIN = "  STAMP_TO(0, stamp_ns());\n  STAMP(1);\n  STAMP_TO(2, stamp_sm());\n"
KEPT = (3, 5, 8, 26, 27)
SMALL_STEPS = range(9, 15)
MATRIX_KEPT = (3, 5, *range(8, 21), 26, 27)
SUMS = "#pragma unroll\n  for (int r = 0; r < ROWS; ++r) {\n#pragma unroll\n    for (int step"
LANDED = "    wait_groups<DEPTH - 1>();\n    __syncwarp();\n"
TIMED = "  if (timed) args.clock[2]"
SMALL_TIMED = "  if (timed) read_clock(args.clock + 2);"
WAITS = "  wait_for_previous();\n"
SMALL_WAITS = "  small_wait_for_last();\n#endif\n"


def kept(i: int) -> str:
    """A stamp that stays in a register until the end: stores on the way wait behind the kernel's reads."""
    return f"  kept_{i} = stamp_clock();\n"


def room(places: tuple[int, ...]) -> str:
    """Registers for them."""
    return "".join(f"  unsigned kept_{i} = 0;\n" for i in places)


def end(places: tuple[int, ...]) -> str:
    """Store them all."""
    return "  STAMP(28);\n" + "".join(f"  STAMP_TO({i}, kept_{i});\n" for i in places)


def kept_in_step(first: int, apart: int, steps: int) -> str:
    """A stamp of each of the first steps `i`."""
    return "".join(f"    if (i == {s})" + kept(first + apart * s)[1:] for s in range(steps))


START = "start(const SmallArgs& args, const Lane& me)"
VECTOR = [
    after("  let_next_start();\n", BEGIN + room(KEPT)),
    after(WAITS, kept(3)),
    ("  __syncthreads();\n  float sums", kept(5) + "  __syncthreads();\n" + kept(8) + "  float sums"),
    before(SUMS, kept(27)),
    before(TIMED, end(KEPT)),
]
SMALL = [
    before("  const u32 base = small_shared", BEGIN + room((*KEPT, *SMALL_STEPS))),
    ("  start(args, me);\n", "  start(args, me, kept_3);\n" + kept(5)),
    after(LANDED, kept_in_step(8, 1, 7)),
    before("  wait_groups<0>();\n  __syncwarp();\n", kept(26)),
    after("  __syncthreads();\n", kept(27)),
    before(SMALL_TIMED, end((*KEPT, *SMALL_STEPS))),
]
WAITED = "    wait_for_fetches();\n    __syncthreads();\n"
ASKED = "      copy_tokens(args, shared, i + 1, token);\n    }\n"
MULTIPLIED = "                      b + stage * STAGE_BYTES, quarter);\n    }\n"
PARTS = "  __syncthreads();\n  if (split == 0) {\n"
FIRST_COPY = "  copy_tokens(args, shared, 0, token);\n"
MATRIX = [
    after("  let_next_start();\n", BEGIN + room(MATRIX_KEPT)),
    (WAITS + FIRST_COPY, WAITS + kept(3) + FIRST_COPY + kept(5)),
    (WAITED, kept_in_step(8, 4, 3) + WAITED + kept_in_step(9, 4, 3)),
    after(ASKED, kept_in_step(10, 4, 3)),
    after(MULTIPLIED, kept_in_step(11, 4, 3)),
    before("  // Splits hand", kept(20)),
    before(PARTS, kept(26)),
    before("    store(args, sums, row +", kept(27)),
    before(TIMED, end(MATRIX_KEPT)),
]
RING = [(START, START[:-1] + ", unsigned& kept_3)"), after(SMALL_WAITS, kept(3))]
MACRO_PATCHES: dict[str, list[Patch]] = {
    "ptx.cuh": [after("#pragma once\n", MACRO)],
    "small/small_args.cuh": [after("#pragma once\n", MACRO)],
}
PATCHES: Patches = {
    "balanced/vector.cu": VECTOR,
    "balanced/matrix.cu": MATRIX,
    "small/small_n.cu": SMALL,
    "small/small_ring.cuh": RING,
    **MACRO_PATCHES,
}
PLACE = """  if (threadIdx.x == 0) {
    unsigned long long ns;
    unsigned sm;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns) :: "memory");
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    (args.clock + 4 + 64 * blockIdx.x)[0] = ns;
    (args.clock + 4 + 64 * blockIdx.x)[2] = sm;
  }
"""
PLACES: Patches = {
    "balanced/vector.cu": [after(WAITS, PLACE)],
    "small/small_ring.cuh": [after(SMALL_WAITS, PLACE)],
}
# Loops compile to the same code as without these
ENDED = "  STAMP_TO(0, stamp_ns());\n  STAMP_TO(2, stamp_sm());\n"
ENDS: Patches = {
    "balanced/vector.cu": [before(TIMED, ENDED)],
    "balanced/matrix.cu": [before(TIMED, ENDED)],
    "small/small_n.cu": [before(SMALL_TIMED, ENDED)],
    **MACRO_PATCHES,
}
