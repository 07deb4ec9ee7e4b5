"""One layer of the kernel for few tokens on the device: packed there, in as many copies as a cold L2 wants.

Weights are packed on the device, since a run looks at hundreds of plans; that `pack_small` gives the same
bytes is checked in every run.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.forms import ARCH
from prunecast.kernels.cuda.small.forms import SMALL_SOURCE, small_defines
from prunecast.kernels.cuda.small.pack import GROUP, NO_COLUMN, PackedSmall
from prunecast.kernels.cuda.small.records import small_records
from prunecast.patterns import TileMap

__all__ = ["COLD_BYTES", "Image", "image_of", "operators_of", "pack_on", "sets_to_rotate"]

COLD_BYTES = 132e6
"""More than twice the L2 of an H200."""
MOST_SETS = 400


class Image(NamedTuple):
    """The weights of a tile map for one height of blocks."""

    packed: PackedSmall
    sets: list[tuple[Any, Any]]
    """Weights and columns on the device, each set elsewhere."""


def sets_to_rotate(set_bytes: float) -> int:
    """Sets that exceed twice the L2 together."""
    return min(max(math.ceil(COLD_BYTES / set_bytes), 2), MOST_SETS)


def pack_on(xp: Any, tiles: TileMap, bits: Any, block_m: int) -> PackedSmall:
    """`pack_small` with the arrays of `xp`, NumPy or CuPy; `weights` and `columns` are of `xp`.

    Parameters
    ----------
    tiles : no tile taller than `block_m`
    bits : (M, K) uint16 of `xp`
    """
    groups = -(-tiles.kept_per_tile.astype(np.int64) // GROUP)
    start = np.concatenate(([0], np.cumsum(groups)))
    columns = np.full(start[-1] * GROUP, NO_COLUMN, np.uint16)
    columns[_places(tiles.column_start, start[:-1] * GROUP)] = tiles.column_index
    rows = np.full(tiles.tile_count * block_m, -1, np.int32)
    rows[_places(tiles.row_start, np.arange(tiles.tile_count) * block_m)] = tiles.row_index
    rows = rows.reshape(tiles.tile_count, block_m)
    of_group = xp.asarray(rows[np.repeat(np.arange(tiles.tile_count), groups)].astype(np.int64))[:, :, None]
    wanted = xp.asarray(columns.astype(np.int64).reshape(-1, 1, GROUP))
    there = (of_group >= 0) & (wanted != NO_COLUMN)
    values = bits[xp.maximum(of_group, 0), wanted * (wanted != NO_COLUMN)] * there
    # k16, fragment, half h of its rows, row g, quarter q, pair of columns p, column of the pair
    split = values.astype(xp.uint16).reshape(-1, block_m // 16, 2, 8, 4, 2, 2)
    ordered = xp.ascontiguousarray(split.transpose(0, 1, 3, 4, 5, 2, 6))
    return PackedSmall(
        weights=ordered.reshape(-1, block_m // 16, 32, 8),
        columns=xp.asarray(columns.reshape(-1, GROUP)),
        rows=rows,
        group_start=start.astype(np.int32),
    )


def _places(start: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Where the elements of lists that begin at `start` go, if list t goes to `first[t]` and on."""
    sizes = np.diff(start).astype(np.int64)
    return np.repeat(first - start[:-1].astype(np.int64), sizes) + np.arange(int(sizes.sum()))


def image_of(tiles: TileMap, bits: Any, block_m: int, *, count: int | None = None) -> Image:
    """Packed on the device, in `count` sets or as many as a cold L2 wants; `tiles` are cut to `block_m`."""
    import cupy as cp

    packed = pack_on(cp, tiles, bits, block_m)
    count = count or sets_to_rotate(packed.weights.nbytes + packed.columns.nbytes)
    copies = [(packed.weights.copy(), packed.columns.copy()) for _ in range(count - 1)]
    return Image(packed, [(packed.weights, packed.columns), *copies])


def operators_of(plan: KernelPlan, image: Image, *, count: int | None = None) -> list[Any]:
    """One `SmallOperator` for each set of the image, or the first `count`."""
    import cupy as cp

    from prunecast.kernels.cuda.small.operator import small_operator

    kernel = _loaded(tuple(small_defines(plan).items()), plan.resources.shared_bytes)
    records = small_records(plan, image.packed)
    found = []
    for weights, columns in image.sets[:count]:
        arrays = {
            "weights": weights,
            "columns": columns,
            "ranges": cp.asarray(records.ranges),
            "places": cp.asarray(records.places),
            "rows": cp.asarray(records.rows),
            "bias": cp.zeros(1, cp.float32),
        }
        found.append(small_operator(plan, records, arrays, kernel, overlap=True))
    return found


@cache
def _loaded(defines: tuple[tuple[str, int], ...], shared_bytes: int) -> Any:
    from prunecast.kernels.cuda.layer_operator import load_kernel

    return load_kernel(compile_cubin(SMALL_SOURCE, ARCH, dict(defines)).cubin, "small_n", shared_bytes)
