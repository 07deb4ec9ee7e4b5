"""Pieces of the tile and the sparse kernel that stamps are written beside; patches that commands share."""

from collections.abc import Callable

from benchmarks.stamps.sources import Patch, after, before

__all__ = [
    "C_LEAVES",
    "EARLY",
    "ENTRY",
    "FIRST_STAMPS",
    "FULL",
    "HELD",
    "ISSUED",
    "LAST_PRODUCT",
    "LET_GO",
    "MULTIPLIED_ALL",
    "SLOT",
    "SMALL_FORM_ENDS",
    "global_macro",
    "halves",
    "head",
    "list_and_launch",
]

ENTRY = "  const u32 base = shared_address(shared);\n"
LET_GO = "  let_next_launch_start();\n#endif\n"
MULTIPLIED_ALL = "base, threadIdx.x - WARPGROUP);\n"
LIST, LAUNCH = "  at.wait_for_list();\n", "#if PDL\n  wait_for_last_launch();\n#endif\n"

# The producer
EARLY = "  int early = 0;  // stages"
SLOT = "    barrier_wait(ring.empty(), ring.parity ^ 1);\n"
ISSUED = "    barrier_arrive_after_copies(ring.full());\n    ring.advance();\n    step += 1;\n"

# The warps that multiply
HELD = "  u32 held = 0;"
FULL = "    barrier_wait(ring.full(), ring.parity);\n#if FENCE"
LAST_PRODUCT = "    multiply_last(me, item, sums);\n"
C_LEAVES = "      me.outgoing.take(sums, ending);\n"
SMALL_FORM_ENDS = "    me.release();\n    finish(args, sums[0], ending, item.w, me.staging, me.lane);\n"

# Those of the sparse kernel, tall tiles, whose upper half is stored while the lower one is multiplied
UPPER = "finish(args, sums[0], upper, item.w, me.staging, me.lane);\n"
LOWER = "finish(args, sums[1], lower, item.w, me.staging, me.lane);\n"
ALONE = "    multiply_alone(me, 0, places, 0, sums[0]);\n"


FIRST_STAMPS = {
    "entry_ns": 0,
    "entry": 1,
    "together": 2,
    "sm": 3,
    "columns": 4,
    "may_read": 5,
    "may_read_ns": 6,
}
"""Where they lie that `head` and `list_and_launch` write."""


def global_macro(words: int) -> str:
    """STAMP and STAMP_NS: a thread writes the clock to its block's `words` in memory."""
    at = f"(args.clock + 4 + {words} * blockIdx.x)[i]"
    return f"""
#define STAMP(thread, i) \\
  do {{ if (threadIdx.x == (thread)) {at} = clock64(); }} while (0)
#define STAMP_NS(thread, i) \\
  do {{ if (threadIdx.x == (thread)) {at} = global_nanoseconds(); }} while (0)
"""


def head(words: int, *, end: int, end_of_other: int) -> list[Patch]:
    """Entry, SM, ends of both multiplying warpgroups; the nanoseconds of the first one follow its `end`."""
    return [
        before(ENTRY, "  const u64 entry_ns = global_nanoseconds();\n  const u64 entry = clock64();\n"),
        after(
            LET_GO,
            "  STAMP(0, 2);\n  if (threadIdx.x == 0) {\n"
            f"    u64* t = args.clock + 4 + {words} * blockIdx.x;\n    u32 sm;\n"
            '    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));\n    t[0] = entry_ns;\n    t[1] = entry;\n'
            "    t[3] = sm;\n  }\n",
        ),
        after(
            MULTIPLIED_ALL,
            f"    STAMP(128, {end});\n    STAMP_NS(128, {end + 1});\n    STAMP(256, {end_of_other});\n",
        ),
    ]


def list_and_launch(*, nanoseconds: bool) -> Patch:
    """When the producer has its list, and when it may read what the launch before has written."""
    waited = "  STAMP(0, 5);\n" + "  STAMP_NS(0, 6);\n" * nanoseconds
    return LIST + LAUNCH, LIST + "  STAMP(0, 4);\n" + LAUNCH + waited


def halves(stamp: Callable[[str, int], str], *, lower_ready: int | None, lower_out: int) -> list[Patch]:
    """Of each item of tall tiles: its first stage (0), the upper half ready (1) and out (2), the lower one.

    Parameters
    ----------
    stamp : the statement for a number of the item and a place among its stamps
    """

    def at(place: int | None, indent: int = 4, nth: str = "me.nth") -> str:
        return "" if place is None else f"{' ' * indent}{stamp(nth, place)}\n"

    multiplied, taken = "multiply_rest(me, item, sums);\n", f"{LOWER}    multiply_alone"
    found = [
        before(f"{ALONE}    multiply_alone", at(0)),
        before(f"{ALONE}    upper", at(0, nth="me.nth + 1")),
    ]
    for indent in (2, 4):
        own = " " * indent
        upper = own + multiplied, own + UPPER
        found.append(("".join(upper), upper[0] + at(1, indent) + upper[1] + at(2, indent)))
    last = "  multiply_wait<0>();\n", f"  {LOWER}"
    found.append(("".join(last), last[0] + at(lower_ready, 2) + last[1] + at(lower_out, 2)))
    next_item = f"{at(lower_ready)}    {LOWER}{at(lower_out)}    ++me.nth;\n    multiply_alone"
    found.append((f"    {taken}", next_item))
    return found
