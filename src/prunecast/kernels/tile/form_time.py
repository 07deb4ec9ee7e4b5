"""How long a form of the tile kernel takes on a tile map, by arithmetic on means: for choosing between forms.

The physics of the performance model without its work list: items are taken as equal, and the busiest SM
counts. A block alone on its SM goes at the pace of its own waits; blocks that share an SM hide them from each
other until a pipe is full. L2 and DRAM bound the launch, whose last items' C leaves when all else is done.
Left out: what a small L2 must fetch again, which on a T4 makes narrow forms look a quarter too fast.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.clock import sm_clock_hz
from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.early_start import (
    beside_list_cycles,
    blocks_apart_cycles,
    head_start_cycles,
    most_before_b_cycles,
)
from prunecast.kernels.tile.choose import FEWEST_STEPS_PER_PIECE
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.form_items import (
    FormItem,
    FormLoad,
    form_item,
    form_load,
    index_cycles,
    lead_cycles,
    next_item_cycles,
    stores_behind,
)
from prunecast.kernels.tile.step_cost import fix_up_cycles, step_cost
from prunecast.patterns.tile_map import TileMap
from prunecast.plan.tile_rows import columns_of_any

__all__ = ["form_time"]

MOST_PARTS = 8
"""Of a tile, that are tried."""
CLOCK_ROUNDS = 3
"""Cycles give the clock and the clock cycles; the forms' order stands after three."""


class _End(NamedTuple):
    """When the last SM is done, if L2 and DRAM were endless."""

    cycles: float
    full_time: float
    """Share of the cycles in which every SM works."""
    full_work: float
    """Share of what SMs ask of L2 and DRAM, meanwhile."""
    busy_share: float
    """Mean over the SMs that work of the time until they are done, over the longest."""
    head_start: float
    """Cycles by which the next launch may begin on SMs that end early, where its long blocks come first."""
    blocks: int
    """Of a persistent grid, that have anything to do."""


class _Chip(NamedTuple):
    """Seconds that what all SMs share works for the launch."""

    all: float
    """The busier of L2 and DRAM, for all that is read and stored."""
    before_last: float
    """The same for what is read, and for the C of all items but the last ones."""
    l2_bytes: float
    dram_bytes: float


def form_time(
    config: TileConfig,
    tiles: TileMap,
    n: int,
    gpu: GpuSpec,
    *,
    persistent: bool = False,
    divisible: bool = False,
    multicast: int = 1,
    block_loads: npt.NDArray[np.float64] | None = None,
) -> float:
    """Seconds of one form of the tile kernel without the launch, mostly within 3 % of the performance model.

    Parameters
    ----------
    tiles : sets of rows that share kept columns
    n : tokens
    persistent : blocks stay and walk a list of items; else each item is a block of its own
    divisible : the kernel cuts heavy tiles and evens out the waves by itself
    multicast : blocks that share one read of the weights
    block_loads : (blocks,) cycles of the items of each block of a persistent grid, most first, where tiles
        are so uneven that their means say little; else the items are taken as equal
    """
    load = form_load(config, tiles, n)
    step = step_cost(config, load.tokens, gpu)
    longest = load.longest(config.shape.block_k)
    mean, most = form_item(config, load, step, gpu), form_item(config, longest, step, gpu)
    lead = lead_cycles(config, load, step, gpu)
    each, once = 0.0, float(gpu.block_start_cycles)
    behind, indices = stores_behind(config, load, gpu), index_cycles(config, gpu, persistent=persistent)
    if not persistent:
        each = lead + indices + gpu.block_start_cycles + behind - next_item_cycles(config, gpu)
        mean, most = (item._replace(alone=item.alone + item.at_end, at_end=0.0) for item in (mean, most))
        once, behind = 0.0, 0.0
    elif config.tensor_path == "wgmma":
        once += lead + indices - next_item_cycles(config, gpu)
    else:
        each = lead
    mean, most = mean._replace(alone=mean.alone + each), most._replace(alone=most.alone + each)
    held = gpu.sm_count * max(occupancy(config.resources, gpu).blocks_per_sm, 1)
    before_b = indices + gpu.block_start_cycles
    if block_loads is not None:
        end = _listed(block_loads, mean, before_b, gpu)
    else:
        ends = [_whole(mean, most, load, before_b, gpu, held)]
        if divisible:
            ends.append(_evened(config, mean, most, load, longest.steps, gpu, held))
        end = min(ends)
    chip = _chip(config, load, tiles, n, gpu, multicast, held)
    tensor, gained = load.items * load.full_steps * step.tensor / gpu.sm_count, 0.0
    if 2 * load.items <= gpu.sm_count:
        once -= indices  # read under the launch before
    elif config.tensor_path == "wgmma":
        once -= 0 if persistent else beside_list_cycles(load.items, gpu)
        started = 0 if persistent else load.items
        gained = most_before_b_cycles(min(end.head_start, before_b), end.blocks, gpu, started=started)
    quiet = mean.quiet + (0.0 if persistent else stores_behind(config, load, gpu))
    end = end._replace(cycles=end.cycles + once, head_start=gained)
    return _seconds(end, chip, quiet, behind, tensor, config.dtype, gpu)


def _listed(loads: npt.NDArray[np.float64], mean: FormItem, before_b: float, gpu: GpuSpec) -> _End:
    """Blocks that were given their items, one to an SM."""
    working = loads[loads > 0.0]
    on_sms = np.zeros(gpu.sm_count)
    on_sms[: working.size] = working[: gpu.sm_count]
    apart = blocks_apart_cycles(working.size, before_b, gpu)
    head_start = head_start_cycles(on_sms, most_before_b_cycles(before_b, working.size, gpu), apart)
    share = float(working.mean() / working.max()) if working.size else 1.0
    return _End(float(loads.max(initial=0.0)) + mean.at_end, 1.0, 1.0, share, head_start, working.size)


def _whole(mean: FormItem, most: FormItem, load: FormLoad, before_b: float, gpu: GpuSpec, held: int) -> _End:
    """SMs with one uncut item more than the others end last; at least the longest item."""
    fewer, with_more = divmod(load.items, gpu.sm_count)
    slots, longest = held // gpu.sm_count, most.alone + most.at_end
    early = _sm_cycles(mean, fewer, slots) + mean.at_end
    if not with_more:
        return _End(max(early, longest), 1.0, 1.0, 1.0, 0.0, held)
    late = _sm_cycles(mean, fewer + 1, slots) + mean.at_end
    early = max(early, 0.0) if fewer else 0.0
    busy = early * (gpu.sm_count - with_more) + late * with_more
    blocks = min(load.items, held)
    head_start = late - early if 2 * with_more <= gpu.sm_count else blocks_apart_cycles(blocks, before_b, gpu)
    share = busy / (late * gpu.sm_count) if fewer else 1.0
    return _End(max(late, longest), early / late, early * gpu.sm_count / busy, share, head_start, blocks)


def _sm_cycles(mean: FormItem, items: int, slots: int) -> float:
    """An SM with so many items, `slots` at a time."""
    rounds, rest = divmod(items, slots)
    last = max(mean.alone, rest * mean.demand) if rest else 0.0
    return rounds * max(mean.alone, slots * mean.demand) + last


def _evened(
    config: TileConfig,
    mean: FormItem,
    most: FormItem,
    load: FormLoad,
    longest_steps: float,
    gpu: GpuSpec,
    held: int,
) -> _End:
    """Cuts let blocks end together, which costs two hand-overs of sums; an owner takes part after part."""
    fix_up = fix_up_cycles(config, gpu)
    cut = min(most.alone / parts + (parts - 1) * fix_up for parts in range(1, MOST_PARTS + 1))
    shortest = mean.alone * min(FEWEST_STEPS_PER_PIECE / max(longest_steps, 1.0), 1.0)
    cycles = max(load.items / held * mean.alone, load.items / gpu.sm_count * mean.demand, shortest)
    return _End(max(cycles + 2 * fix_up, cut) + mean.at_end, 1.0, 1.0, 1.0, 0.0, held)


def _chip(
    config: TileConfig, load: FormLoad, tiles: TileMap, n: int, gpu: GpuSpec, multicast: int, held: int
) -> _Chip:
    element, k16 = config.element_bytes, load.full_steps * config.shape.block_k / 16
    reads = load.items * k16 * (config.weight_bytes_per_k16 / multicast + 16 * load.tokens * element)
    c_bytes = load.items * load.c_bytes
    dram_reads = load.packed_bytes + columns_of_any(tiles) * n * element
    l2, l2_stores = reads / gpu.l2_bytes_per_s, c_bytes / gpu.l2_store_bytes_per_s
    dram, dram_writes = dram_reads / gpu.dram_bytes_per_s, c_bytes / gpu.dram_write_bytes_per_s
    earlier = max(0.0, 1.0 - held / max(load.items, 1))
    written = max(earlier, dram_reads / max(dram_reads + c_bytes, 1.0))
    return _Chip(
        all=max(l2 + l2_stores, dram + dram_writes),
        before_last=max(l2 + earlier * l2_stores, dram + written * dram_writes),
        l2_bytes=reads + c_bytes,
        dram_bytes=dram_reads + c_bytes,
    )


def _seconds(
    end: _End,
    chip: _Chip,
    quiet_end: float,
    behind: float,
    tensor_cycles: float,
    dtype: str,
    gpu: GpuSpec,
) -> float:
    """The SMs' cycles at the clock that goes with them, and what all share at its own pace."""
    clock_hz, seconds = gpu.max_clock_hz, 0.0
    for _ in range(CLOCK_ROUNDS):
        quiet_s = (gpu.block_start_cycles + gpu.dram_latency_cycles) / clock_hz
        busy_s = max(end.cycles / clock_hz - quiet_s, 0.0)
        end_s = min(quiet_end / clock_hz, busy_s)
        last_item_s = quiet_s + _together(busy_s - end_s, end, chip.before_last) + end_s
        last_s, all_s = last_item_s + behind / clock_hz, quiet_s + _together(busy_s, end, chip.all)
        seconds = max(max(last_s, all_s) - end.head_start / clock_hz, chip.all)
        sm_cycles = seconds * clock_hz * gpu.sm_count
        clock_hz = sm_clock_hz(
            gpu,
            tensor_duty=tensor_cycles * gpu.sm_count / sm_cycles,
            l2_bytes_per_clk_per_sm=chip.l2_bytes / sm_cycles,
            dram_bytes_per_clk_per_sm=chip.dram_bytes / sm_cycles,
            state="burst",
            dtype=dtype,
            busy_share=end.busy_share,
            period_s=seconds,
        )
    return seconds


def _together(busy_s: float, end: _End, shared_s: float) -> float:
    """SMs against what they share, first while all work and then while the last items do."""
    full = max(busy_s * end.full_time, shared_s * end.full_work)
    return full + max(busy_s * (1.0 - end.full_time), shared_s * (1.0 - end.full_work))
