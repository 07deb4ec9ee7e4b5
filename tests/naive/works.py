"""Random GPUs and random work lists."""

from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from tests.naive.records import POLICIES, Item, Kernel, Machine, Work

from prunecast.kernels.plan import Schedule

__all__ = ["machines", "works"]

FEATURES = 64
"""Columns of A; tiles keep at most 40 of them."""


@st.composite
def machines(draw: DrawFn) -> Machine:
    """GPUs of one to four SMs, with latencies from nothing and costs far below to far above a cycle."""
    latency = st.integers(0, 12)
    cost = st.sampled_from((0, 100, 4096, 20_000, 60_001))
    return Machine(
        sms=draw(st.integers(1, 4)),
        partitions=draw(st.sampled_from((1, 2, 4))),
        slots=draw(st.integers(1, 3)),
        policy=draw(st.sampled_from(POLICIES)),
        block_start=draw(latency),
        barrier_latency=draw(st.integers(0, 5)),
        l2_latency=draw(latency),
        dram_latency=draw(st.integers(0, 40)),
        shared_latency=draw(st.integers(0, 5)),
        tensor_latency=draw(latency),
        port_ticks_per_kib=draw(cost),
        l2_ticks_per_kib=draw(cost),
        dram_ticks_per_kib=draw(cost),
        shared_ticks_per_kib=draw(cost),
        tensor_ticks_per_kfma=draw(cost),
        fma_ticks=draw(st.sampled_from((0, 1, 4096, 9000))),
        l2_capacity=draw(st.sampled_from((1, 300, 2000, 1 << 20))),
        panel=draw(st.sampled_from((1, 1, 4, 7))),
    )


@st.composite
def _tile_columns(draw: DrawFn) -> tuple[int, ...]:
    return tuple(sorted(draw(st.sets(st.integers(0, FEATURES - 1), max_size=40))))


@st.composite
def _tile_items(draw: DrawFn, kernel: Kernel, tile: int, kept: int, group: int) -> list[Item]:
    """The items of one tile and token range: one, or the parts of a split at multiples of block_k."""
    place = {
        "tile": tile,
        "rows": draw(st.integers(1, kernel.block_m)),
        "token_start": kernel.block_n * draw(st.integers(0, 1)),
    }
    # The same token range has the same length in every item; the second one is ragged.
    place["tokens"] = kernel.block_n if place["token_start"] == 0 else 5
    parts = draw(st.sampled_from((1, 1, 2, 3)))
    if parts == 1:
        return [Item(k_count=kept, **place)]
    cuts = sorted(min(kept, kernel.block_k * draw(st.integers(0, 3))) for _ in range(parts - 1))
    ends = [0, *cuts, kept]
    owner = draw(st.integers(0, parts - 1))
    return [
        Item(k_start=a, k_count=b - a, group=group, parts=parts, owner=part == owner, **place)
        for part, (a, b) in enumerate(pairwise(ends))
    ]


@st.composite
def works(draw: DrawFn, kernel: Kernel, machine: Machine) -> Work:
    """Up to eighteen items under any schedule, where every part stands before the owners that wait for it."""
    tiles = draw(st.lists(_tile_columns(), max_size=6))
    by_tile = [draw(_tile_items(kernel, tile, len(kept), tile)) for tile, kept in enumerate(tiles)]
    items = draw(st.permutations([item for tile_items in by_tile for item in tile_items]))
    groups = {item.group for item in items if item.parts > 1}
    renumbered = {group: number for number, group in enumerate(sorted(groups))}
    items = [_renumber(item, renumbered) for item in items]
    items.sort(key=lambda item: item.parts > 1 and item.owner)
    return _dealt(draw, items, tuple(tiles), machine)


def _renumber(item: Item, renumbered: dict[int, int]) -> Item:
    return Item(**{**vars(item), "group": renumbered.get(item.group, -1)})


def _dealt(draw: DrawFn, items: list[Item], columns: tuple[tuple[int, ...], ...], machine: Machine) -> Work:
    schedule = draw(st.sampled_from(Schedule))
    if schedule is Schedule.HARDWARE:
        blocks, start = len(items), tuple(range(len(items) + 1))
    elif schedule is Schedule.DYNAMIC:
        blocks, start = draw(st.integers(1, machine.sms * machine.slots + 1)), (0, len(items))
    else:
        blocks = draw(st.integers(1, machine.sms * machine.slots))
        dealt = [draw(st.integers(0, blocks - 1)) for _ in items]
        start = tuple(sum(block < b for block in dealt) for b in range(blocks + 1))
        order = sorted(range(len(items)), key=lambda i: dealt[i])
        items = [items[i] for i in order]
    return Work(schedule=schedule, blocks=blocks, block_start=start, items=tuple(items), columns=columns)
