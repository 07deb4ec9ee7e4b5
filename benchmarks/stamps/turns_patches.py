"""Stamps of `gpu_turns`: both multiplying warpgroups and the producer of tall 2:4 tiles, item by item."""

from benchmarks.stamps.anchors import (
    EARLY,
    ENTRY,
    FULL,
    HELD,
    ISSUED,
    LET_GO,
    MULTIPLIED_ALL,
    SLOT,
    halves,
    list_and_launch,
)
from benchmarks.stamps.sources import Patch, Patches, before

__all__ = ["GROUPS_AT", "MACRO", "MOST_ITEMS", "PLAIN", "STAMPED", "STORES", "WORDS"]

WORDS = 512
"""Stamps of a block, kept in shared memory until it ends: the fence of a full stage waits for stores."""
HEAD = {"entry": 1, "together": 2, "sm": 3, "columns": 4, "may_read": 5, "end": 7, "end_of_other": 9}
MOST_ITEMS, MOST_STEPS = 8, 32
GROUPS_AT, PRODUCER_AT = 16, 144
"""Of an item: eight stamps of each warpgroup (`GROUP`), and four of the producer (`ISSUE`)."""
GROUP = {"first_full": 0, "upper_ready": 1, "upper_out": 2, "lower_ready": 3, "lower_out": 4}
"""`ready`: that half's sums are complete, `out`: their stores are issued."""
ISSUE = {"asks": 0, "slot_free": 1, "first_issued": 2, "last_issued": 3}
FULL_AT, FENCED_AT, FREE_AT, ISSUED_AT = 176, 240, 304, 336
"""Of the first 32 steps: found full and the fence behind it passed (32 of each warpgroup), slot found free,
copies issued."""
ASKED_AT = 368
"""When each warpgroup asked for the stage."""
STORES = {"stored": 3, "aliased": 2, "staged": 1}
"""What becomes of C."""

MACRO = """
__device__ __forceinline__ u32* stamps_of_block() {
  __shared__ u32 stamps[512];
  return stamps;
}
__device__ __forceinline__ u32 stamp_now() {
  u32 t;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(t) :: "memory");
  return t;
}
#define STAMP(thread, i) do { if (threadIdx.x == (thread)) stamps_of_block()[i] = stamp_now(); } while (0)
#define STAMP_GROUP(nth, i) \\
  do { \\
    if (threadIdx.x % 128 == 0 && (nth) < 8) \\
      stamps_of_block()[16 + 16 * (nth) + 8 * (threadIdx.x / 128 - 1) + (i)] = stamp_now(); \\
  } while (0)
#define STAMP_STEP(at, nth) \\
  do { \\
    if (threadIdx.x % 128 == 0 && (nth) < 32) \\
      stamps_of_block()[(at) + 32 * (threadIdx.x >= 256) + (nth)] = stamp_now(); \\
  } while (0)
#define STAMP_ISSUE(nth, i) do { if ((nth) < 8) STAMP(0, 144 + 4 * (nth) + (i)); } while (0)
"""

KERNEL: list[Patch] = [
    (
        ENTRY,
        f"  const u32 entry = stamp_now();\n{ENTRY}"
        "  for (int i = threadIdx.x; i < 512; i += THREADS) stamps_of_block()[i] = 0;\n",
    ),
    (
        LET_GO,
        f"{LET_GO}  STAMP(0, 2);\n  if (threadIdx.x == 0) {{\n"
        '    u32 sm;\n    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));\n'
        "    stamps_of_block()[1] = entry;\n    stamps_of_block()[3] = sm;\n  }\n",
    ),
    (
        MULTIPLIED_ALL + "  }\n",
        f"{MULTIPLIED_ALL}    STAMP(128, 7);\n    STAMP(256, 9);\n  }}\n  __syncthreads();\n"
        "  for (int i = threadIdx.x; i < 512; i += THREADS) {\n"
        "    (args.clock + 4 + 512 * blockIdx.x)[i] = stamps_of_block()[i];\n  }\n",
    ),
]
PRODUCER: list[Patch] = [
    before(EARLY, "  int nth = 0, nth_step = 0;\n"),
    (
        SLOT,
        f"    if (step == 0) STAMP_ISSUE(nth, 0);\n{SLOT}"
        "    if (step == 0) STAMP_ISSUE(nth, 1);\n    STAMP_STEP(304, nth_step);\n",
    ),
    (
        ISSUED,
        ISSUED.replace(
            "    ring",
            "    if (step == 0) STAMP_ISSUE(nth, 2);\n"
            "    STAMP_STEP(336, nth_step);\n    ++nth_step;\n    ring",
        )
        + "    if (step == steps_of(item)) STAMP_ISSUE(nth, 3);\n    if (step == steps_of(item)) ++nth;\n",
    ),
    list_and_launch(nanoseconds=False),
]
SPARSE_CONSUMER: list[Patch] = [
    before(HELD, "  mutable int seen = 0;\n  int nth = 0;\n"),
    (FULL, "    STAMP_STEP(368, seen);\n" + FULL.replace("#if", "    STAMP_STEP(176, seen);\n#if")),
    (
        "    fence_async_proxy();\n#endif\n",
        "    fence_async_proxy();\n#endif\n    STAMP_STEP(240, seen);\n    ++seen;\n",
    ),
    *halves(
        lambda nth, i: f"STAMP_GROUP({nth}, {i});",
        lower_ready=GROUP["lower_ready"],
        lower_out=GROUP["lower_out"],
    ),
]
SPARSE_EPILOGUE: list[Patch] = [
    (
        "    if (inside && ending.rows[i] >= 0) {\n",
        "#if STORES == 2\n    token &= 4095;\n#endif\n"
        "    if (STORES > 1 && inside && ending.rows[i] >= 0) {\n",
    ),
]
GATHERING: list[Patch] = [
    (
        "    gather.stage(ring.tokens() + offset,",
        "    if (GATHERS) gather.stage(ring.tokens() + offset,",
    )
]
PLAIN: Patches = {"sparse/sparse_epilogue.cuh": SPARSE_EPILOGUE, "tile_producer.cuh": GATHERING}
"""Without stamps only what becomes of C and B may differ."""
STAMPED: Patches = {
    "sparse/sparse_epilogue.cuh": SPARSE_EPILOGUE,
    "tile_producer.cuh": [*GATHERING, *PRODUCER],
    "sparse/sparse_sm90.cu": KERNEL,
    "sparse/sparse_consumer.cuh": SPARSE_CONSUMER,
}
