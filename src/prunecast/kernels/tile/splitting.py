"""Split-K in STSpMM: which tiles are split along K, and into how many slices.

Two things keep blocks of a persistent grid from finishing together: tiles that are heavier than a block's
share, and a last wave that does not fill the GPU. Splitting costs: the fp32 partial sums of every slice are
written and read again.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.kernels.tile.item_cost import FEWEST_STEPS_PER_PART, ItemCost, item_cycles
from prunecast.plan.kernel_plan import WorkList
from prunecast.plan.order import block_loads, longest_first
from prunecast.plan.work_items import Sizes, split_items

__all__ = ["even_slices"]

WORTHWHILE_STEPS = 5
"""Gap in k-steps between the fullest block and the mean below which splitting cannot pay."""
TAIL_SLICES = (2, 3, 4, 6, 8)
"""Numbers of slices that are tried for items of a last wave that is not full."""
HEAVY_SHARES = (1, 2, 4)
"""Slices of a heavy item are at most the mean block's k-steps over one of these."""


def even_slices(items: WorkList, blocks: int, block_k: int, cost: ItemCost) -> Sizes:
    """(items,) number of split-K slices of each item that lets `blocks` blocks finish soonest.

    No slice is shorter than 8 k-steps, and nothing is split where the fullest block is within 5 k-steps of
    the mean. Tried: splitting what exceeds a share of the mean load, splitting the last wave of the
    longest-first order into equal slices, and both together; judged by the fullest block of a longest-first
    assignment. More slices must gain more than a k-step.
    """
    steps = -(-items.k_stop // block_k)
    most = np.maximum(steps // FEWEST_STEPS_PER_PART, 1)
    best = _finish(items, np.ones(steps.size, np.int64), blocks, block_k, cost)
    mean = float(item_cycles(items, block_k, cost.shared_by(steps.size, blocks)).sum()) / blocks
    if best.cycles - mean <= WORTHWHILE_STEPS * cost.step:
        return best.slices
    for slices in _choices(steps, most, mean / cost.step, blocks):
        found = _finish(items, slices, blocks, block_k, cost)
        if found.cycles < best.cycles - cost.step:
            best = found
    return best.slices


class _Split(NamedTuple):
    slices: Sizes
    cycles: float
    """SM cycles from the start of the launch to the end of the fullest block."""


def _choices(steps: Sizes, most: Sizes, mean_steps: float, blocks: int) -> list[Sizes]:
    """Slice counts worth trying, each once, fewest slices first."""
    heavy = [np.minimum(-(-steps // max(int(mean_steps / share), 1)), most) for share in HEAVY_SHARES]
    unsplit = np.ones(steps.size, np.int64)
    bases = [unsplit, *(np.maximum(slices, 1) for slices in heavy)]
    last_wave = _last_wave(steps, blocks)
    choices = list(bases[1:])
    for base in bases:
        for count in TAIL_SLICES:
            slices = base.copy()
            slices[last_wave] = np.minimum(np.maximum(base[last_wave], count), most[last_wave])
            choices.append(slices)
    distinct = {slices.tobytes(): slices for slices in choices}
    distinct.pop(unsplit.tobytes(), None)
    return sorted(distinct.values(), key=lambda slices: int(slices.sum()))


def _last_wave(steps: Sizes, blocks: int) -> npt.NDArray[np.intp]:
    """Items that a longest-first order leaves for a last wave that is not full."""
    order = np.argsort(-steps, kind="stable")
    return order[steps.size // blocks * blocks :]


def _finish(items: WorkList, slices: Sizes, blocks: int, block_k: int, cost: ItemCost) -> _Split:
    """The fullest block's end, or that of an owner that waits for the partial sums of its group."""
    parts = split_items(items, slices, block_k)
    cycles = item_cycles(parts, block_k, cost.shared_by(parts.tile.size, blocks))
    start = cost.start if 2 * parts.tile.size > blocks else 0.0
    handed_over = np.where(parts.owner == 0, cycles + (parts.parts - 1) * cost.fix_up, 0)
    loads = block_loads(cycles, longest_first(cycles, blocks), blocks)
    return _Split(slices, float(max(loads.max(initial=0), handed_over.max(initial=0))) + start)
