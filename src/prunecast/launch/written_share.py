"""What share of all that comes into L2 it writes to DRAM, where launches of a kernel follow one another."""

import numpy as np

from prunecast.kernels.table import KERNELS
from prunecast.launch.context import LaunchContext
from prunecast.launch.sums_left import sums_left_bytes
from prunecast.plan.kernel_plan import DTYPE_BYTES

__all__ = ["written_share"]


def written_share(context: LaunchContext) -> float:
    """Bytes of C and of partial sums over those, packed weights and used rows of B. 0 where launches neither
    gather and overlap nor are dense or 2:4 products.

    Launches of many times L2's size leave it full of all three, so that every byte that comes in drives so
    much of a byte that was written out to DRAM. Seen in first stages: they come 1,060 cycles later for a MB
    of B (`docs/decisions/0007`). Also on an RTX 3090, whose V:N:M kernels with 8 MB of C and 4 MB else take
    16.2 us where C after all else takes 21.3 (0009).
    """
    plan = context.plan
    if context.co_resident or not (plan.pdl or KERNELS[plan.kernel].fills_l2):
        return 0.0
    tiles, element = plan.tiles, DTYPE_BYTES[plan.dtype]
    rows = tiles.rows_per_tile.astype(np.float64)
    c = float(rows.sum()) * plan.n * element + float(sums_left_bytes(plan).sum())
    a = float(rows @ tiles.kept_per_tile) * element * (0.5 if plan.inner is not None else 1.0)
    b = float(np.unique(tiles.column_index).size) * plan.n * element
    return c / (c + a + b) if c else 0.0
