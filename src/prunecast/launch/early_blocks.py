"""Which blocks of a launch of few tokens are there before the launch before it ends (0008).

A block takes the place of one that ends. Where blocks keep unequally many columns most places come free long
before the longest block ends, so that the next launch has its columns and first weights by then, as one has
that finds room for all blocks at once. Equal blocks end together, and what has no room waits for that.
"""

import numpy as np
import numpy.typing as npt

from prunecast.launch.piled_up import Columns, block_places

__all__ = ["early_share"]


def early_share(columns: Columns, fit: int, sms: int, *, column_cycles: float, start_cycles: float) -> float:
    """Of a launch's blocks, those that are there in time, 0 to 1. All count where those that are late end no
    later for it than the longest one: nobody waits for them.

    Parameters
    ----------
    columns : that each block multiplies, in the order of their launch
    fit, sms : blocks that an SM has room for; SMs
    column_cycles : of a block, for a column
    start_cycles : before the end of the launch before in which a block must have begun
    """
    blocks, room = len(columns), fit * sms
    at_once = min(-blocks % max(room, 1) / max(blocks, 1), 1.0)
    if at_once >= 1.0 or blocks > room or len(set(columns)) == 1:
        return at_once
    ends = column_cycles * _ends(columns, fit, sms)
    late = np.zeros(blocks)
    left = np.sort(ends)[: 2 * blocks - room]
    late[room - blocks :] = np.maximum(start_cycles - (ends.max() - left), 0.0)
    if float((ends + late).max()) <= float(ends.max()):
        return 1.0
    return float((late == 0.0).mean())


def _ends(columns: Columns, fit: int, sms: int) -> npt.NDArray[np.float64]:
    """(blocks,) when they end, in columns: half of what two do on one SM they do in turns, as where they lie
    is followed (`place_loops.py`).
    """
    length = np.array(columns, np.float64)
    place = block_places(columns, fit, sms) if fit > 1 else np.arange(length.size)
    together = (place % sms)[:, None] == (place % sms)[None, :]
    both = np.where(together, np.minimum(length[:, None], length[None, :]), 0.0)
    return np.asarray((length + both.sum(axis=1)) / 2.0)
