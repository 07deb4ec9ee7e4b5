"""Which config of a kernel to run: each one's time by simple arithmetic, and the least.

Nothing here needs a GPU or a simulation; it is what a library's heuristic does at run time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.step_cost import fix_up_cycles, step_cost
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import PlanDoesNotFit

__all__ = [
    "ITEM_OVERHEAD_CYCLES",
    "Candidate",
    "Demand",
    "best",
    "candidates",
    "reads_per_element",
]

ITEM_OVERHEAD_CYCLES = 2500
"""Start and end of an item that its k-steps do not hide; 2600 measured on an H200 (2026-11-20)."""
FEWEST_STEPS_PER_PIECE = 8
"""A shorter part does not repay the 4 to 5 steps that writing and reading its sums takes."""


class Demand(NamedTuple):
    """The work to be done: sets of rows that share kept columns, and the tokens."""

    rows: IntArray
    """(sets,): rows of each."""
    kept: IntArray
    """(sets,): kept columns of each."""
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A config and what it would take.

    Parameters
    ----------
    config : the form of the kernel
    pieces : parts into which every tile's k range is cut; 1 for none
    blocks_per_sm : occupancy
    items : work items, parts counted
    waves : items over what the GPU holds at once
    step_cycles : SM cycles of one full k-step of one block, if it had the SM to itself
    cycles : of the whole launch
    """

    config: TileConfig
    pieces: int
    blocks_per_sm: int
    items: int
    waves: float
    step_cycles: float
    cycles: float


def candidates(
    configs: Iterable[TileConfig],
    demand: Demand,
    gpu: GpuSpec,
    *,
    divisible: bool = False,
) -> list[Candidate]:
    """One candidate for each config that fits on the GPU, fastest first; of equals the one that reads less.

    Parameters
    ----------
    divisible : the kernel cuts heavy tiles and evens out the waves by itself
    """
    found = []
    for config in configs:
        if occupancy(config.resources, gpu).blocks_per_sm == 0:
            continue
        found.append(_candidate(config, demand, gpu, divisible=divisible))
    return sorted(found, key=lambda c: (c.cycles, reads_per_element(c.config), c.config.shape.block_n))


def best(found: list[Candidate], kernel: str, gpu: GpuSpec) -> Candidate:
    """The fastest candidate.

    Raises
    ------
    PlanDoesNotFit : there is none
    """
    if not found:
        raise PlanDoesNotFit(f"{kernel}: no config of the kernel fits on an SM of {gpu.name}")
    return found[0]


def reads_per_element(config: TileConfig) -> float:
    """Bytes read through the L2 port for each element of C and 16 columns."""
    tokens = 16 * config.shape.block_n * config.element_bytes / config.pair
    return (config.weight_bytes_per_k16 + tokens) / (config.shape.block_m * config.shape.block_n)


def _candidate(config: TileConfig, demand: Demand, gpu: GpuSpec, *, divisible: bool) -> Candidate:
    load = _load(config, demand)
    items = load.items
    blocks_per_sm = occupancy(config.resources, gpu).blocks_per_sm
    busy = max(min(items, gpu.sm_count), 1)
    step = step_cost(config, demand.n, gpu, busy_sms=busy).cycles
    # Blocks on one SM share it; with few items, fewer blocks meet
    together = max(min(blocks_per_sm, -(-items // gpu.sm_count)), 1)
    waves = items / (gpu.sm_count * together)
    mean, longest = (steps * step * together for steps in (load.mean_steps, load.longest_steps))
    whole = max(math.ceil(waves) * (mean + ITEM_OVERHEAD_CYCLES), longest + ITEM_OVERHEAD_CYCLES)
    evened = max(waves * mean, min(longest, FEWEST_STEPS_PER_PIECE * step * together))
    evened += max(waves, 1.0) * ITEM_OVERHEAD_CYCLES + 2 * fix_up_cycles(config, gpu)
    return Candidate(
        config=config,
        pieces=1,
        blocks_per_sm=blocks_per_sm,
        items=items,
        waves=waves,
        step_cycles=step,
        cycles=min(whole, evened) if divisible else whole,
    )


class _Load(NamedTuple):
    items: int
    mean_steps: float
    longest_steps: int


def _load(config: TileConfig, demand: Demand) -> _Load:
    """Unsplit items of a config and their k-steps."""
    tiles = -(-demand.rows // config.shape.block_m)
    steps = -(-demand.kept // config.shape.block_k)
    ranges = -(-demand.n // config.shape.block_n)
    tile_count = int(tiles.sum())
    mean = float(np.dot(tiles.astype(np.int64), steps)) / max(tile_count, 1)
    return _Load(tile_count * ranges, mean, int(steps.max(initial=0)))
