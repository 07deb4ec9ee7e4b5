"""Short ways to write small kernels and work lists down."""

from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import Code, WarpProgram
from tests.naive.engine_adapter import simulate_fast
from tests.naive.records import Item, Kernel, Work
from tests.naive.simulator import simulate_naively

__all__ = ["KIB", "SIMULATORS", "cycles_per_kib", "equal_blocks", "listed", "one_role"]

SIMULATORS = {"twin": simulate_naively, "engine": simulate_fast}
KIB = 1024
Columns = tuple[tuple[int, ...], ...]


def cycles_per_kib(cycles: int) -> int:
    """The cost in ticks per KiB of a server that passes a KiB in so many cycles."""
    return cycles * 4096


def one_role(*, warps: int = 1, stages: int = 0, **codes: Code) -> Kernel:
    """A kernel of one role; `codes` are its start, begin, fill, step, end and finish."""
    return Kernel(programs=(WarpProgram(role="all", warps=warps, **codes),), stages=stages)


def listed(*items: Item, columns: Columns | None = None, block_start: tuple[int, ...] | None = None) -> Work:
    """One item per block; with `block_start` a static list. Tiles keep columns 0, 1, 2, ... unless given."""
    if columns is None:
        kept = max(item.k_start + item.k_count for item in items)
        columns = (tuple(range(kept)),) * (1 + max(item.tile for item in items))
    start = block_start or tuple(range(len(items) + 1))
    schedule = Schedule.STATIC if block_start else Schedule.HARDWARE
    return Work(schedule=schedule, blocks=len(start) - 1, block_start=start, items=items, columns=columns)


def equal_blocks(blocks: int, kept: int) -> Work:
    """Blocks of one item each, on tiles of their own that keep the same columns 0 .. kept - 1."""
    return listed(*(Item(tile=tile, k_count=kept) for tile in range(blocks)))
