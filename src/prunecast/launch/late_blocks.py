"""How much later the last block of a launch of few tokens ends than a block like it (0008).

Equal blocks do not end together: each of their waits for DRAM and L2 takes another time, so that ends come
apart the longer blocks take, until those that are behind meet less traffic. A launch waits for the last one.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch.context import LaunchContext

__all__ = ["Lateness", "late_cycles", "lateness_of"]


class Lateness(NamedTuple):
    """How late blocks of a plan end."""

    share: float
    """Of what a block takes, scale of how late it is (Gumbel); 0 where launches have that in constants."""
    most: float
    """Cycles of that scale."""
    counted: float
    """Cycles of it, of any block, that the launch's own time has."""
    start: float
    """Until a block begins, which is none of its own time."""


def lateness_of(context: LaunchContext) -> Lateness:
    """Of launches whose blocks start while the one before them ends: the time between was measured from the
    last end of all, or fitted to equal blocks of the tile kernel (`slow_sm_cycles`).
    """
    if not context.co_resident or not context.pdl:
        return Lateness(0.0, 0.0, 0.0, 0.0)
    gpu = context.gpu
    counted = 0.0 if context.pdl_release_s > 0.0 else gpu.slow_sm_cycles
    start = float(gpu.block_start_cycles)
    return Lateness(gpu.late_block_share, gpu.late_block_cycles, counted, start)


def late_cycles(ends: npt.NDArray[np.float64], lateness: Lateness) -> float:
    """From the last of these ends to that of the launch, where every block may be late.

    ends : (SMs,) when each SM ends if no block is late, 0 if it has none
    """
    last = float(ends.max(initial=0.0))
    scale = min(lateness.share * max(last - lateness.start, 0.0), lateness.most)
    if scale <= 0.0:
        return 0.0
    behind = ends[ends > 0.0] - last
    return max(_last_of(behind, scale) - _last_of(behind, lateness.counted), 0.0)


def _last_of(behind: npt.NDArray[np.float64], scale: float) -> float:
    """Mean of the last of ends `behind` 0 that are late by a Gumbel variate of this scale and mode 0."""
    return scale * float(np.log(np.exp(behind / scale).sum())) if scale > 0.0 else 0.0
