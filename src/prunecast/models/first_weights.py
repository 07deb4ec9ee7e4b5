"""Wait of the first rows of B behind the weight prefetch of all blocks, in launches of one wave.

Tile kernels ask DRAM for a ring of weights before `griddepcontrol.wait` and for B behind it. Where SMs are
free, blocks that start early have their weights by then (`launch/prefetch.py`). Worth 0.2 points on stspmm
and 0.4 on block-sparse.
"""

from prunecast.launch import LaunchContext
from prunecast.launch.overlap import early_starts, prologue_is_hidden

SHOWN_SHARE = 0.7
"""Share of the prefetch's time at DRAM that launches show: blocks ask over 0.7 to 1.3 us, by clock stamps,
while DRAM serves those before. Fitted to 120 products of 120 to 132 whole blocks (H200, 2026-11-22)."""


def first_weights_share(context: LaunchContext) -> float:
    """Share of the weights of all blocks' first rings for which B waits, however long tiles are.

    0 where the preceding launch hides it: split tiles leave their SMs long before it ends. The constants of
    2:4 have it.
    """
    plan, blocks = context.plan, context.plan.blocks
    whole = plan.inner is None and int(plan.work.parts.max(initial=1)) == 1
    one_wave = plan.item_count == blocks <= context.gpu.sm_count
    overlap = context.prefetches_weights and context.pdl and not prologue_is_hidden(context)
    if not (whole and one_wave and overlap):
        return 0.0
    return SHOWN_SHARE * (1.0 - min(early_starts(context) / max(blocks, 1), 1.0))


def first_weights_s(context: LaunchContext, share: float, a_bytes: float, columns: float) -> float:
    """Seconds that rows of B wait for the weight prefetch at DRAM.

    Parameters
    ----------
    share : as `first_weights_share`
    a_bytes, columns : weights that all items read, and columns that they keep together
    """
    plan, gpu = context.plan, context.gpu
    ring = plan.resources.stages * plan.shape.block_k * plan.item_count
    return share * a_bytes * min(ring / columns, 1.0) / gpu.dram_bytes_per_s if columns else 0.0
