"""Stamps of `gpu_items`: the end of one item and the start of the next, of a block's first items."""

from benchmarks.stamps.anchors import (
    C_LEAVES,
    EARLY,
    FIRST_STAMPS,
    FULL,
    HELD,
    ISSUED,
    LAST_PRODUCT,
    SLOT,
    SMALL_FORM_ENDS,
    global_macro,
    halves,
    head,
    list_and_launch,
)
from benchmarks.stamps.sources import Patch, Patches, after, before

__all__ = ["HEAD", "ITEM", "ITEMS_AT", "MACRO", "MOST_ITEMS", "PLAIN", "STAMPED", "WORDS"]

WORDS = 128
"""Stamps of a block."""
HEAD = {
    **FIRST_STAMPS,
    "end": 7,
    "end_ns": 8,
    "end_of_other": 9,
}
ITEM = {
    "first_full": 0,
    "multiplied": 1,
    "flushed": 2,
    "taken": 3,
    "asks": 4,
    "slot_free": 5,
    "first_issued": 6,
    "last_issued": 7,
}
"""Of each of the first `MOST_ITEMS`: four by the first multiplying warp, four by a producer."""
ITEMS_AT, MOST_ITEMS = 16, 6
"""From 64 on: when the first 64 steps of the block were found full, across items."""
MACRO = (
    global_macro(WORDS)
    + """\
#define STAMP_ITEM(thread, nth, i) \\
  do { if ((nth) < 6) STAMP(thread, 16 + 8 * (nth) + (i)); } while (0)
"""
)

KERNEL = head(WORDS, end=HEAD["end"], end_of_other=HEAD["end_of_other"])
PRODUCER: list[Patch] = [
    before(EARLY, "  int nth = 0;\n"),
    (
        SLOT,
        f"    if (step == 0) STAMP_ITEM(0, nth, 4);\n{SLOT}    if (step == 0) STAMP_ITEM(0, nth, 5);\n",
    ),
    (
        ISSUED,
        ISSUED.replace("    ring", "    if (step == 0) STAMP_ITEM(0, nth, 6);\n    ring")
        + "    if (step == steps_of(item)) STAMP_ITEM(0, nth, 7);\n    if (step == steps_of(item)) ++nth;\n",
    ),
    list_and_launch(nanoseconds=True),
]
CONSUMER: list[Patch] = [
    before(HELD, "  mutable int seen = 0;\n  int nth = 0;\n"),
    (FULL, FULL.replace("#if", "    if (seen < 64) STAMP(128, 64 + seen);\n    ++seen;\n#if")),
]
TILE_CONSUMER: list[Patch] = [
    *CONSUMER,
    before(
        "  multiply_step(me.weights(), me.tokens(), 0, sums);\n  me.send();\n",
        "  { const TileArgs& args = me.args; STAMP_ITEM(128, me.nth, 0); }\n",
    ),
    after(LAST_PRODUCT, "    STAMP_ITEM(128, me.nth, 1);\n"),
    (
        f"      me.outgoing.flush(args);\n{C_LEAVES}    }}\n",
        f"      me.outgoing.flush(args);\n      STAMP_ITEM(128, me.nth, 2);\n{C_LEAVES}"
        "      STAMP_ITEM(128, me.nth, 3);\n    }\n    ++me.nth;\n",
    ),
]
SPARSE_CONSUMER: list[Patch] = [
    *CONSUMER,
    after("    const Places first = me.wait_full();\n", "    STAMP_ITEM(128, me.nth, 0);\n"),
    (
        SMALL_FORM_ENDS,
        SMALL_FORM_ENDS.replace("    finish", "    STAMP_ITEM(128, me.nth, 1);\n    finish")
        + "    STAMP_ITEM(128, me.nth, 3);\n    ++me.nth;\n",
    ),
    *halves(lambda nth, i: f"STAMP_ITEM(128, {nth}, {i});", lower_ready=None, lower_out=ITEM["taken"]),
]
PLAIN: Patches = {
    "tile_epilogue.cuh": [
        before("    if (left == 0) return;\n", "#if STORES_NOTHING\n    left = 0;\n    return;\n#endif\n")
    ]
}
"""Without stamps only C may be left out."""
STAMPED: Patches = {
    "tile_kernel.cuh": KERNEL,
    "sparse/sparse_sm90.cu": KERNEL,
    "tile_producer.cuh": PRODUCER,
    "tile_consumer.cuh": TILE_CONSUMER,
    "sparse/sparse_consumer.cuh": SPARSE_CONSUMER,
    **PLAIN,
}
