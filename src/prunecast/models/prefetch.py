"""Weight prefetch: weights that blocks ask DRAM for before `griddepcontrol.wait`, and so before rows of B.

Blocks of co-resident launches do so while the preceding launch still runs: instructions `posted` stand for
the prefetch of the next launch's blocks, which DRAM serves in this launch's time. In launches of one wave of
the tile kernels the first rows of B wait behind the prefetch of all blocks; where SMs are free, blocks that
start early have their weights by then.
"""

from itertools import takewhile

import numpy as np

from prunecast.launch import LaunchContext
from prunecast.plan.program import Instruction, Op


def posted_bytes(context: LaunchContext) -> float:
    """Weights that the blocks of the next launch prefetch while this one runs: as much as this one's did.

    Only blocks that the GPU holds at once do so before this launch ends.
    """
    return _weight_bytes(context, min(context.plan.item_count, context.held), posted=True)


def unposted_bytes(context: LaunchContext, blocks: int) -> float:
    """Return the bytes of weights that blocks request themselves before their first rows of B."""
    return _weight_bytes(context, blocks, posted=False)


def _weight_bytes(context: LaunchContext, items: int, *, posted: bool) -> float:
    columns = (context.plan.work.k_stop - context.plan.work.k_start).astype(np.int64)[:items]
    return sum(
        _bytes_of(load, program.warps, columns, context.plan.shape.block_k)
        for program in context.programs
        for load in takewhile(lambda i: i.op is not Op.LOAD_B, program.begin)
        if load.op is Op.LOAD_A and load.posted == posted
    )


def _bytes_of(load: Instruction, warps: int, columns: np.ndarray, block_k: int) -> float:
    """Bytes of the step that a load acts on, in all items that have it."""
    in_step = np.clip(columns - load.ahead * block_k, 0, block_k)
    times = -(-in_step // 16) if load.per_k16 else in_step > 0
    return float(load.amount * warps * times.sum())


def first_weights_s(context: LaunchContext, share: float, a_bytes: float, columns: float) -> float:
    """Seconds that rows of B wait for the weight prefetch at DRAM.

    Parameters
    ----------
    share : `MemoryRules.weights_first`
    a_bytes, columns : weights that all items read, and columns that they keep together
    """
    plan, gpu = context.plan, context.gpu
    ring = plan.resources.stages * plan.shape.block_k * plan.item_count
    return share * a_bytes * min(ring / columns, 1.0) / gpu.dram_bytes_per_s if columns else 0.0
