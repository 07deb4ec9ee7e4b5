"""Stamps of `gpu_trace`: when blocks start, wait, multiply and end, stage by stage of their first ring."""

from benchmarks.stamps.anchors import (
    C_LEAVES,
    FIRST_STAMPS,
    FULL,
    HELD,
    LAST_PRODUCT,
    SMALL_FORM_ENDS,
    global_macro,
    head,
    list_and_launch,
)
from benchmarks.stamps.sources import Patch, Patches, after, before

__all__ = ["MACRO", "PATCHES", "STAMPS", "WORDS"]

WORDS = 64
"""Stamps of a block."""
STAMPS = {
    **FIRST_STAMPS,
    "produced": 7,
    "stage": 8,
    "full": 24,
    "multiplied": 40,
    "took_over": 41,
    "handed_over": 42,
    "stored": 43,
    "end": 44,
    "end_ns": 45,
    "asks_sums": 46,
    "sums_there": 47,
    "sums_fetched": 48,
    "end_of_other": 49,
}
"""Places among them; `stage` and `full` are the first 16 stages that were issued and found full."""
MACRO = global_macro(WORDS)

KERNEL = head(WORDS, end=STAMPS["end"], end_of_other=STAMPS["end_of_other"])
PRODUCER = [
    list_and_launch(nanoseconds=True),
    (
        "#pragma unroll 1\n  while (at.fetch_stage()) {\n  }\n",
        "  int issued = 8;\n#pragma unroll 1\n  while (at.fetch_stage()) {\n"
        "    if (issued < 24) STAMP(0, issued);\n    ++issued;\n  }\n"
        "  STAMP(0, 7);\n",
    ),
]
CONSUMER: list[Patch] = [
    before(HELD, "  mutable int seen = 24;\n"),
    (FULL, FULL.replace("#if", "    if (seen < 40) STAMP(128, seen);\n    ++seen;\n#if")),
]
TILE_CONSUMER = [
    *CONSUMER,
    (
        LAST_PRODUCT + "    if (ending.split.w == OWNER) take_over(me, sums, ending.split.y);\n",
        LAST_PRODUCT + "    STAMP(128, 40);\n"
        "    if (ending.split.w == OWNER) {\n      take_over(me, sums, ending.split.y);\n"
        "      STAMP(128, 41);\n    }\n",
    ),
    after("      hand_over(args, sums, ending.split, me.warp, me.lane);\n", "      STAMP(128, 42);\n"),
    after(C_LEAVES, "      STAMP(128, 43);\n"),
]
SUMS = [
    before("  const int4 split = load_early(args.splits + place);\n  if", "  STAMP(0, 46);\n"),
    before("    *counter = 0;\n", "    STAMP(0, 47);\n"),
    (
        "    ring.advance();\n  }\n}\n\n// Adds one",
        "    ring.advance();\n  }\n  STAMP(0, 48);\n}\n\n// Adds one",
    ),
]
SPARSE_CONSUMER = [
    *CONSUMER,
    (
        SMALL_FORM_ENDS,
        SMALL_FORM_ENDS.replace("    finish", "    STAMP(128, 40);\n    finish") + "    STAMP(128, 43);\n",
    ),
    (
        "  multiply_rest(me, item, sums);\n  finish(args, sums[0], upper",
        "  multiply_rest(me, item, sums);\n  STAMP(128, 40);\n  finish(args, sums[0], upper",
    ),
    (
        "  multiply_wait<0>();\n  finish(args, sums[1]",
        "  multiply_wait<0>();\n  STAMP(128, 43);\n  finish(args, sums[1]",
    ),
]
PATCHES: Patches = {
    "tile_kernel.cuh": KERNEL,
    "sparse/sparse_sm90.cu": KERNEL,
    "tile_producer.cuh": PRODUCER,
    "tile_consumer.cuh": TILE_CONSUMER,
    "tile_sums.cuh": SUMS,
    "sparse/sparse_consumer.cuh": SPARSE_CONSUMER,
}
