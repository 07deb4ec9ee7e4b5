"""Which items STSpMM cuts, and into how many parts.

Two things keep blocks of a persistent grid from finishing together: tiles that are heavier than a block's
share, and a last wave that does not fill the GPU. Cutting costs: the fp32 sums of every part are written and
read again.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.hardware.occupancy import occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.tile.choose import FEWEST_STEPS_PER_PIECE, ITEM_OVERHEAD_CYCLES, Candidate
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.form_items import FormLoad, form_pace, index_cycles
from prunecast.kernels.tile.step_cost import fix_up_cycles, step_cost
from prunecast.plan.kernel_plan import WorkList
from prunecast.plan.order import block_loads, longest_first
from prunecast.plan.work_items import Sizes, split_items

__all__ = ["Evened", "ItemCost", "even_pieces", "item_cost", "item_cycles", "tile_item_cost"]

WORTHWHILE_STEPS = 5
"""Gap between the fullest block and the mean below which cutting cannot pay."""
TAIL_PIECES = (2, 3, 4, 6, 8)
HEAVY_SHARES = (1, 2, 4)


class ItemCost(NamedTuple):
    """SM cycles of the pieces of an item's time."""

    step: float
    """One full k-step."""
    overhead: float
    """Start and end of any item."""
    fix_up: float
    """Writing, or reading, the sums of one part."""
    slots: int = 1
    """Blocks that an SM holds, all of which `step` counts as being there."""
    fetch: float = 0.0
    """One k-step, full or not, of warps that only copy, or of a block's own waits, whoever shares its SM."""
    fetch_overhead: float = 0.0
    """Of the same, for any item."""
    fewest_columns: int = 0
    """That an item multiplies, whatever it keeps."""
    start: float = 0.0
    """Before a block reads B; under the launch before, where the blocks of both fit on the SMs together."""

    def shared_by(self, items: int, blocks: int) -> "ItemCost":
        """The same where there are not enough items for all blocks, so that fewer share an SM."""
        there = min(max(items / blocks, 1.0 / self.slots), 1.0)
        return self._replace(step=self.step * there)


def item_cost(chosen: Candidate, gpu: GpuSpec) -> ItemCost:
    """What items of the chosen config cost; blocks that share an SM slow each other's steps down."""
    step = chosen.step_cycles * chosen.blocks_per_sm
    fix_up = fix_up_cycles(chosen.config, gpu)
    return ItemCost(step, ITEM_OVERHEAD_CYCLES, fix_up, chosen.blocks_per_sm)


def tile_item_cost(config: TileConfig, load: FormLoad, gpu: GpuSpec) -> ItemCost:
    """What items of the project's tile kernel cost, by the physics that its forms are chosen by.

    Parameters
    ----------
    load : of the chosen config
    """
    slots = occupancy(config.resources, gpu).blocks_per_sm
    pace = form_pace(config, load, step_cost(config, load.tokens, gpu), gpu)
    start = index_cycles(config, gpu, persistent=True)
    return ItemCost(
        step=pace.step * slots,
        overhead=pace.edge,
        fix_up=fix_up_cycles(config, gpu),
        slots=slots,
        fetch=pace.fetch,
        fetch_overhead=pace.fetch_edge,
        fewest_columns=load.fewest_columns,
        start=start + gpu.block_start_cycles if start else 0.0,
    )


def item_cycles(items: WorkList, block_k: int, cost: ItemCost) -> npt.NDArray[np.int64]:
    """(items,) int64 SM cycles; an owner reads the sums of all other parts, which each write theirs."""
    columns = np.maximum(items.k_stop - items.k_start, cost.fewest_columns)
    multiplied = -(-columns // 16) * 16 / block_k * cost.step + cost.overhead
    fetched = -(-columns // block_k) * cost.fetch + cost.fetch_overhead
    fix_ups = np.where(items.owner == 1, items.parts - 1, 1)
    cycles: npt.NDArray[np.float64] = np.maximum(multiplied, fetched) + fix_ups * cost.fix_up
    return np.rint(cycles).astype(np.int64)


class Evened(NamedTuple):
    """How items are cut, and what it comes to."""

    pieces: Sizes
    """(items,) of each whole item."""
    cycles: float
    """Of the fullest block, from its first k-step on."""
    start: float
    """Before that, unless the launch before hides it."""
    loads: npt.NDArray[np.float64]
    """(blocks,) cycles of the items of each block."""


def even_pieces(items: WorkList, blocks: int, block_k: int, cost: ItemCost) -> Evened:
    """The number of pieces of each whole item that lets `blocks` blocks finish soonest.

    No piece is shorter than 8 k-steps, and nothing is cut where the fullest block is within 5 k-steps of
    the mean. Tried: cutting what exceeds a share of the mean load, cutting the last wave of the longest-first
    order into equal pieces, and both together; judged by the fullest block of a longest-first assignment.
    More cuts must gain more than a k-step.
    """
    steps = -(-items.k_stop // block_k)
    most = np.maximum(steps // FEWEST_STEPS_PER_PIECE, 1)
    best = _finish(items, np.ones(steps.size, np.int64), blocks, block_k, cost)
    mean = float(item_cycles(items, block_k, cost.shared_by(steps.size, blocks)).sum()) / blocks
    if best.cycles + best.start - mean <= WORTHWHILE_STEPS * cost.step:
        return best
    for pieces in _choices(steps, most, mean / cost.step, blocks):
        found = _finish(items, pieces, blocks, block_k, cost)
        if found.cycles + found.start < best.cycles + best.start - cost.step:
            best = found
    return best


def _choices(steps: Sizes, most: Sizes, mean_steps: float, blocks: int) -> list[Sizes]:
    """Piece counts worth trying, fewest cuts first."""
    heavy = [np.minimum(-(-steps // max(int(mean_steps / share), 1)), most) for share in HEAVY_SHARES]
    bases = [np.ones(steps.size, np.int64), *(np.maximum(pieces, 1) for pieces in heavy)]
    last_wave = _last_wave(steps, blocks)
    choices = list(bases[1:])
    for base in bases:
        for count in TAIL_PIECES:
            pieces = base.copy()
            pieces[last_wave] = np.minimum(np.maximum(base[last_wave], count), most[last_wave])
            choices.append(pieces)
    return sorted(choices, key=lambda pieces: int(pieces.sum()))


def _last_wave(steps: Sizes, blocks: int) -> npt.NDArray[np.intp]:
    """Items that a longest-first order leaves for a last wave that is not full."""
    order = np.argsort(-steps, kind="stable")
    return order[steps.size // blocks * blocks :]


def _finish(items: WorkList, pieces: Sizes, blocks: int, block_k: int, cost: ItemCost) -> Evened:
    """The fullest block, or an owner that waits for its parts."""
    parts = split_items(items, pieces, block_k)
    cycles = item_cycles(parts, block_k, cost.shared_by(parts.tile.size, blocks))
    start = cost.start if 2 * parts.tile.size > blocks else 0.0
    handed_over = np.where(parts.owner == 0, cycles + (parts.parts - 1) * cost.fix_up, 0)
    loads = block_loads(cycles, longest_first(cycles, blocks), blocks).astype(np.float64)
    most = float(max(loads.max(initial=0), handed_over.max(initial=0)))
    return Evened(pieces, most, start, loads)
