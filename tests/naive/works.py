"""Random GPUs and random work lists."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Op
from tests.naive.records import POLICIES, Item, Kernel, Machine, Work

__all__ = ["machines", "works"]

FEATURES = 64
"""Columns of A; tiles keep at most 40 of them."""


@st.composite
def machines(draw: DrawFn) -> Machine:
    """GPUs of one to four SMs, with latencies from nothing and costs far below to far above a cycle."""
    latency = st.integers(0, 12)
    cost = st.sampled_from((4096, 0, 100, 20_000, 60_001))
    return Machine(
        sms=draw(st.integers(1, 4)),
        partitions=draw(st.sampled_from((1, 2, 4))),
        slots=draw(st.integers(1, 3)),
        policy=draw(st.sampled_from(POLICIES)),
        block_start=draw(latency),
        barrier_latency=draw(st.integers(0, 5)),
        sync_latency=draw(st.integers(0, 5)),
        signal_latency=draw(latency),
        l2_latency=draw(latency),
        gather_latency=draw(latency),
        store_latency=draw(latency),
        dram_latency=draw(st.integers(0, 40)),
        shared_latency=draw(st.integers(0, 5)),
        tensor_latency=draw(latency),
        port_ticks_per_kib=draw(cost),
        gather_ticks_per_kib=draw(cost),
        store_ticks_per_kib=draw(cost),
        l2_ticks_per_kib=draw(cost),
        l2_store_ticks_per_kib=draw(cost),
        dram_ticks_per_kib=draw(cost),
        dram_write_ticks_per_kib=draw(cost),
        l2_contention=draw(st.sampled_from((0, 256, 100))),
        dram_queue=draw(latency),
        block_interval=draw(st.sampled_from((0, 3000, 9001))),
        answer_interval=draw(st.sampled_from((0, 1, 5))),
        shared_ticks_per_kib=draw(cost),
        tensor_ticks_per_kfma=draw(cost),
        fma_ticks=draw(st.sampled_from((0, 1, 4096, 9000))),
        l2_capacity=draw(st.sampled_from((2000, 1 << 20, 300, 1))),
        panel=draw(st.sampled_from((1, 1, 4, 7))),
    )


@st.composite
def _tile_columns(draw: DrawFn) -> tuple[int, ...]:
    """A run, a comb or a scattering of columns; odd strides visit every column of FEATURES once."""
    first, stride = draw(st.integers(0, FEATURES - 1)), draw(st.sampled_from((1, 3, 27)))
    columns = [(first + i * stride) % FEATURES for i in range(draw(st.integers(0, 40)))]
    return tuple(sorted(columns) if draw(st.booleans()) else columns)


@st.composite
def _parts(draw: DrawFn, kernel: Kernel, whole: Item, group: int) -> list[Item]:
    """The item itself, or the parts of a split, some of them empty."""
    parts = draw(st.sampled_from((1, 1, 2, 3)))
    if parts == 1:
        return [whole]
    unit = draw(st.sampled_from((kernel.block_k, 5)))
    cuts = sorted(min(whole.k_count, unit * draw(st.integers(0, 4))) for _ in range(parts - 1))
    owner = draw(st.integers(0, parts - 1))
    split = {"group": group, "parts": parts}
    return [
        replace(whole, k_start=start, k_count=stop - start, owner=part == owner, **split)
        for part, (start, stop) in enumerate(pairwise([0, *cuts, whole.k_count]))
    ]


@st.composite
def works(draw: DrawFn, kernel: Kernel, machine: Machine) -> Work:
    """Up to thirty items under any schedule, where every part stands before the owners that wait for it."""
    boxes = any(i.op is Op.COPY_B for program in kernel.programs for i in program.step)
    tiles = draw(st.lists(_tile_columns(), max_size=5))
    items: list[Item] = []
    groups = 0
    for tile, columns in enumerate(tiles):
        rows, zeros = draw(st.integers(1, kernel.block_m)), draw(st.sampled_from((0, 0, 1, 40)))
        zeros = 0 if boxes else zeros
        for token_block in draw(st.sampled_from(((0,), (1,), (0, 1)))):
            # The second token range is ragged, the same in every item.
            tokens = kernel.block_n if token_block == 0 else 5
            place = {"tile": tile, "token_start": token_block * kernel.block_n, "tokens": tokens}
            whole = Item(k_count=len(columns), rows=rows, **place)
            parts = draw(_parts(kernel, whole, groups))
            parts = [replace(whole, zeros=zeros)] if len(parts) == 1 else parts
            groups += len(parts) > 1
            items += parts
    items = sorted(draw(st.permutations(items)), key=lambda item: item.parts > 1 and item.owner)
    return _dealt(draw, items, tuple(tiles), machine)


def _dealt(draw: DrawFn, items: list[Item], columns: tuple[tuple[int, ...], ...], machine: Machine) -> Work:
    schedule = draw(st.sampled_from(Schedule))
    if schedule is Schedule.HARDWARE:
        blocks, start = len(items), tuple(range(len(items) + 1))
    else:
        blocks = draw(st.integers(1, machine.sms * machine.slots))
        dealt = [draw(st.integers(0, blocks - 1)) for _ in items]
        start = tuple(sum(block < b for block in dealt) for b in range(blocks + 1))
        order = sorted(range(len(items)), key=lambda i: dealt[i])
        items = [items[i] for i in order]
    return Work(
        schedule=schedule,
        blocks=blocks,
        block_start=start,
        items=tuple(items),
        columns=columns,
        rows_in_l2=draw(st.booleans()),
        early_sms=draw(st.integers(0, machine.sms)),
    )
