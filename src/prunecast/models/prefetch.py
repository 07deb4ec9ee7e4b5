"""Weight prefetch: blocks request weights before `griddepcontrol.wait`, and rows of B after it.

Blocks of co-resident launches prefetch while the preceding launch still runs. In their warp programs, a
LOAD_A instruction with `posted` set represents the prefetch by the next launch, which DRAM serves during this
launch. If a launch of a tile kernel has one wave, DRAM serves the prefetch of all blocks before the first
rows of B. If SMs are free during the preceding launch, the blocks that start early on them already have their
weights when they may read B.

Blocks of small-n, and of balanced with one token, request weights first in other launches, too. All blocks of
the first wave do so at once, and DRAM serves these requests before the first rows of B.
"""

import math
from itertools import takewhile

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.plan.program import Instruction, Op


def posted_bytes(context: LaunchContext) -> float:
    """Return the bytes of weights that the blocks of the next launch prefetch while this launch runs.

    The next launch is assumed to equal this one. Only as many of its blocks as the GPU holds at once prefetch
    before this launch ends.
    """
    return _weight_bytes(context, min(context.plan.item_count, context.held), posted=True)


def unposted_bytes(context: LaunchContext, blocks: int) -> float:
    """Return the bytes of weights that the first `blocks` blocks of this launch load before rows of B.

    The prefetch for the next launch is not included.
    """
    return _weight_bytes(context, blocks, posted=False)


def burst_overlap(burst: float, deviation: float, waves: float) -> float:
    """Return the mean overlap of the requests of two blocks in the middle of a launch, 0 to 1.

    Unequal blocks drift apart from wave to wave, so that DRAM serves some of them before others request
    weights. After n waves the starts of two blocks differ by a normal distribution with standard deviation
    sqrt(2 n) s, where s is that of the cycles of the blocks of one wave.

    Parameters
    ----------
    burst : cycles in which DRAM serves the requests of all blocks of a wave
    deviation : standard deviation s in cycles
    waves : waves after the first one
    """
    ratio = burst / max(math.sqrt(waves) * deviation, 1e-9)
    beyond = math.sqrt(2.0 / math.pi) * -math.expm1(-0.5 * ratio**2) / ratio
    return math.erf(ratio / math.sqrt(2.0)) - beyond


def _weight_bytes(context: LaunchContext, items: int, *, posted: bool) -> float:
    """Return the bytes of LOAD_A before the first LOAD_B in the programs of the first `items` items."""
    columns = (context.plan.work.k_stop - context.plan.work.k_start).astype(np.int64)[:items]
    return sum(
        _bytes_of(load, program.warps, columns, context.plan.shape.block_k)
        for program in context.programs
        for load in takewhile(lambda i: i.op is not Op.LOAD_B, program.begin)
        if load.op is Op.LOAD_A and load.posted == posted
    )


def _bytes_of(load: Instruction, warps: int, columns: np.ndarray, block_k: int) -> float:
    """Return the bytes that a load of weights moves, summed over items.

    The load acts on the k-step `load.ahead` of an item and is skipped for items without this k-step.

    Parameters
    ----------
    warps : warps that execute the load
    columns : (items,) kept columns of each item
    block_k : columns of a k-step
    """
    in_step = np.clip(columns - load.ahead * block_k, 0, block_k)
    times = -(-in_step // 16) if load.per_k16 else in_step > 0
    return float(load.amount * warps * times.sum())
