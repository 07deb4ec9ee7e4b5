"""What the slow simulator is given (a GPU, a kernel and its work) and what it reports."""

from collections import Counter
from dataclasses import dataclass, field

from prunecast.plan.kernel_plan import Schedule
from prunecast.plan.program import WarpProgram

__all__ = ["POLICIES", "Item", "Kernel", "Machine", "NaiveResult", "Work"]

POLICIES = ("gto", "gty", "lrr", "oldest")
"""Names of the schedulers in the order of the engine's policy numbers."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A GPU as the engine sees it: latencies in cycles, costs in ticks (4096 to a cycle)."""

    sms: int = 1
    partitions: int = 4
    slots: int = 1
    policy: str = "gto"
    block_start: int = 0
    barrier_latency: int = 0
    sync_latency: int = 0
    signal_latency: int = 0
    l2_latency: int = 0
    gather_latency: int = 0
    store_latency: int = 0
    dram_latency: int = 0
    shared_latency: int = 0
    tensor_latency: int = 0
    port_ticks_per_kib: int = 0
    gather_ticks_per_kib: int = 0
    store_ticks_per_kib: int = 0
    l2_ticks_per_kib: int = 0
    l2_store_ticks_per_kib: int = 0
    dram_ticks_per_kib: int = 0
    dram_write_ticks_per_kib: int = 0
    l2_contention: int = 0
    """256ths of a tick that reads and stores take from each other for each tick, while both wait at L2."""
    dram_queue: int = 0
    """Cycles of prefetched weights for which other reads wait."""
    block_interval: int = 0
    """Ticks between the starts of two blocks of the first wave."""
    answer_interval: int = 0
    """Cycles between the answers to two requests for a segment that is being fetched."""
    shared_ticks_per_kib: int = 0
    tensor_ticks_per_kfma: int = 0
    """Ticks for 1024 FMA."""
    fma_ticks: int = 0
    """Ticks for one fp32 FMA instruction of a warp."""
    l2_capacity: int = 1 << 20
    """Bytes."""
    panel: int = 1
    """Rows of B in one segment."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """The roles of a block, its ring and its tile of C."""

    programs: tuple[WarpProgram, ...]
    stages: int = 0
    block_m: int = 16
    block_n: int = 16
    block_k: int = 16
    fewest_steps: int = 0

    def multiplied(self, item: "Item") -> int:
        """Columns that an item multiplies."""
        fewest = (self.fewest_steps - 1) * self.block_k + 16 if self.fewest_steps else 0
        return max(item.k_count + item.zeros, fewest)


@dataclass(frozen=True, kw_only=True)
class Item:
    """One work item: kept columns k_start .. k_start + k_count - 1 of a tile, and a token range."""

    tile: int = 0
    k_start: int = 0
    k_count: int = 16
    zeros: int = 0
    """Columns of zeros behind the kept ones, if the item is a whole tile."""
    rows: int = 16
    tokens: int = 16
    token_start: int = 0
    group: int = -1
    parts: int = 1
    owner: bool = True


@dataclass(frozen=True, kw_only=True)
class Work:
    """The items, how blocks come by them, and per tile its kept columns."""

    schedule: Schedule = Schedule.HARDWARE
    blocks: int
    block_start: tuple[int, ...]
    items: tuple[Item, ...]
    columns: tuple[tuple[int, ...], ...]
    rows_in_l2: bool = False
    early_sms: int = 0
    box_parts: int = 1
    """Neighbouring tiles whose blocks each copy their own part of a box of B."""


@dataclass(kw_only=True)
class NaiveResult:
    """Everything the engine reports, counted the plain way."""

    cycles: int = 0
    stalls: Counter[str] = field(default_factory=Counter)
    """Warp-cycles by `prunecast.simulator.result.STALLS`."""
    resident_warp_cycles: int = 0
    sm_busy: list[int]
    sm_items: list[int] = field(default_factory=list)
    sm_tensor_ticks: list[int] = field(default_factory=list)
    instructions: int = 0
    operations: int = 0
    l2_bytes: int = 0
    l2_hit_bytes: int = 0
    l2_miss_bytes: int = 0
    dram_bytes: int = 0
