"""Seconds in which DRAM brings weights before any rows of B, in launches of one wave.

The gathering kernels of sm_90 ask for the weights of a ring before they wait for the launch before, and for B
after it. Where SMs are left, blocks that start early have theirs by then (`launch/brought_ahead.py`).
"""

from prunecast.launch import LaunchContext
from prunecast.launch.overlap import early_starts, prologue_is_hidden

__all__ = ["first_weights_s", "first_weights_share"]

SHOWN_SHARE = 0.7
"""Share of that time that shows: blocks issue loads over 0.7 to 1.3 us, by clock stamps, while DRAM serves
those that were there. Fitted to the cycles of 120 products of 120 to 132 whole blocks marked fit
(2026-11-22)."""


def first_weights_share(context: LaunchContext) -> float:
    """Share of the weights in all blocks' first rings that B waits for, however long tiles are.

    0 where no launch before shows it: parts of cut tiles leave their SMs long before it ends. 2:4 has it in
    the constants of its ends.
    """
    plan, blocks = context.plan, context.plan.blocks
    whole = plan.inner is None and int(plan.work.parts.max(initial=1)) == 1
    one_wave = plan.item_count == blocks <= context.gpu.sm_count
    overlap = context.prefetches_weights and context.pdl and not prologue_is_hidden(context)
    if not (whole and one_wave and overlap):
        return 0.0
    return SHOWN_SHARE * (1.0 - min(early_starts(context) / max(blocks, 1), 1.0))


def first_weights_s(context: LaunchContext, share: float, a_bytes: float, columns: float) -> float:
    """In seconds, of items that keep so many `columns` together and read `a_bytes` of weights.

    share : as `first_weights_share`
    """
    plan, gpu = context.plan, context.gpu
    ring = plan.resources.stages * plan.shape.block_k * plan.item_count
    return share * a_bytes * min(ring / columns, 1.0) / gpu.dram_bytes_per_s if columns else 0.0
