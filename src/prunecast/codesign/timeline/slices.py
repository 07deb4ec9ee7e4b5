"""Conversion of recorded events to nested slices: block, work item, k-step, then stalls and instructions.

Times are ticks of the simulator (`engine.TICKS` per cycle). They are rounded only when the file is written.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.plan.program import Op
from prunecast.simulator import STALLS
from prunecast.simulator import engine as e
from prunecast.simulator.simulate import EVENT_KINDS, Recording

IntColumns = npt.NDArray[np.int64]

SEGMENTS = ("start", "begin", "fill", "step", "end", "finish", "exit")
OPERATIONS = {int(op): op.name.lower().replace("_", " ") for op in Op} | {e.EXIT_OP: "exit"}
STALL, ISSUE, TENSOR, BLOCK = range(len(EVENT_KINDS))


class Track(NamedTuple):
    """One track of the trace, which viewers show as a thread."""

    sm: int
    kind: str
    """`tensor` or `issue` for a sub-partition of the SM, `block` for a block slot, or `warp` for a warp."""
    slot: int
    """Index of the block slot (place of a resident block on the SM); -1 for sub-partitions."""
    lane: int
    """Index of the sub-partition, or of the warp within its block; 0 for the track of a block slot."""


class Slices(NamedTuple):
    """Slices of one track at one nesting depth, in the order of their starts and without overlap."""

    track: Track
    category: str
    """`tensor`, `issue`, `stall`, `segment`, `item` or `block`."""
    names: list[str]
    start: IntColumns
    """(slices,) int64, ticks."""
    stop: IntColumns


def slices_of(recording: Recording) -> Iterator[Slices]:
    """Yield the slices of a recording, track by track; outer slices come before the ones inside them."""
    rows = recording.rows
    # Leave out blocks after the last recorded wave: only their start was recorded
    shown = rows[(rows[:, e.E_ITEM] != e.NO_ITEM) | (rows[:, e.E_KIND] == BLOCK), e.E_BLOCK]
    rows = rows[np.isin(rows[:, e.E_BLOCK], np.unique(shown))]
    for sm in np.unique(rows[:, e.E_SM]).tolist():
        mine = rows[rows[:, e.E_SM] == sm]
        place = mine[:, e.E_SLOT] * recording.roles.size + mine[:, e.E_WARP]
        lane = place % recording.partitions
        for partition in range(recording.partitions):
            yield from _of_partition(mine[lane == partition], sm, partition)
        for slot in np.unique(mine[:, e.E_SLOT]).tolist():
            yield from _of_slot(mine[mine[:, e.E_SLOT] == slot], sm, slot)


def _of_partition(rows: IntColumns, sm: int, partition: int) -> Iterator[Slices]:
    for kind, name in ((TENSOR, "tensor"), (ISSUE, "issue")):
        chosen = rows[rows[:, e.E_KIND] == kind]
        if chosen.size:
            what = [OPERATIONS[op] for op in chosen[:, e.E_WHAT].tolist()]
            yield _joined(Track(sm, name, -1, partition), name, chosen, what, (e.E_WHAT, e.E_SLOT, e.E_WARP))


def _of_slot(rows: IntColumns, sm: int, slot: int) -> Iterator[Slices]:
    # Show the work items of the first warp that uses tensor cores, or of the first warp if none does
    multiplying = rows[rows[:, e.E_KIND] == TENSOR, e.E_WARP]
    leader = int((multiplying if multiplying.size else rows[:, e.E_WARP]).min())
    track = Track(sm, "block", slot, 0)
    yield _blocks(track, rows)
    active = rows[np.isin(rows[:, e.E_KIND], (STALL, ISSUE))]
    yield _items(track, active[active[:, e.E_WARP] == leader])
    for warp in np.unique(active[:, e.E_WARP]).tolist():
        yield from _of_warp(active[active[:, e.E_WARP] == warp], Track(sm, "warp", slot, warp))


def _blocks(track: Track, rows: IntColumns) -> Slices:
    """Return one slice per block, from its placement to the end of its stores or of its last recorded event.

    The later of the two ends counts.
    """
    cycles = rows[rows[:, e.E_KIND] != TENSOR]
    numbers, place = np.unique(cycles[:, e.E_BLOCK], return_inverse=True)
    start = np.full(numbers.size, np.iinfo(np.int64).max)
    stop = np.zeros(numbers.size, np.int64)
    np.minimum.at(start, place, cycles[:, e.E_START])
    np.maximum.at(stop, place, cycles[:, e.E_STOP])
    order = np.argsort(start, kind="stable")
    names = [f"block {number}" for number in numbers[order].tolist()]
    return Slices(track, "block", names, start[order] * e.TICKS, stop[order] * e.TICKS)


def _items(track: Track, rows: IntColumns) -> Slices:
    rows = rows[rows[:, e.E_ITEM] != e.NO_ITEM]
    names = [f"item {item}" for item in rows[:, e.E_ITEM].tolist()]
    return _joined(track, "item", rows, names, (e.E_BLOCK, e.E_ITEM))


def _of_warp(rows: IntColumns, track: Track) -> Iterator[Slices]:
    segments = [SEGMENTS[segment] for segment in rows[:, e.E_SEGMENT].tolist()]
    stepped = np.isin(rows[:, e.E_SEGMENT], (e.FILL, e.STEP)).tolist()
    steps = rows[:, e.E_STEP].tolist()
    names = [
        f"{segment} {step}" if counts else segment
        for segment, step, counts in zip(segments, steps, stepped, strict=True)
    ]
    yield _items(track, rows)
    where = (e.E_BLOCK, e.E_ITEM, e.E_SEGMENT, e.E_STEP)
    yield _joined(track, "segment", rows, names, where)
    for kind, category, known in ((STALL, "stall", dict(enumerate(STALLS))), (ISSUE, "issue", OPERATIONS)):
        chosen = rows[rows[:, e.E_KIND] == kind]
        what = [known[name] for name in chosen[:, e.E_WHAT].tolist()]
        yield _joined(track, category, chosen, what, (*where, e.E_WHAT))


def _joined(track: Track, category: str, rows: IntColumns, names: list[str], key: tuple[int, ...]) -> Slices:
    """Return the rows as slices; adjacent rows with equal values in the columns `key` are merged.

    The rows are in the order of time.
    """
    scale = 1 if category == "tensor" else e.TICKS
    start, stop = rows[:, e.E_START] * scale, rows[:, e.E_STOP] * scale
    cut = np.ones(len(names), bool)
    columns = rows[:, list(key)]
    cut[1:] = (start[1:] != stop[:-1]) | np.any(columns[1:] != columns[:-1], axis=1)
    first = np.flatnonzero(cut)
    last = np.append(first[1:], len(names)) - 1 if first.size else first
    return Slices(track, category, [names[i] for i in first.tolist()], start[first], stop[last])
