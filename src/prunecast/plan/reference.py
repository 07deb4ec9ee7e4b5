"""CPU reference: run the work items of a plan one by one in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.plan.kernel_plan import KernelPlan

Matrix = npt.NDArray[np.floating[Any]]


def run_reference(plan: KernelPlan, a: Matrix, b: Matrix) -> npt.NDArray[np.float64]:
    """Return C (M, N) in float64, computed item by item as the plan's work list specifies.

    C of a grouped launch has the rows of one expert.

    Every item multiplies its tile's rows with its tokens over its range of the tile's kept columns. If a tile
    is split into k-slices, their results are added in ascending order of `WorkList.part`. Elements of `a`
    that the plan does not keep are never read, and rows that no item writes stay zero.

    Parameters
    ----------
    a : (M, K) weights
    b : (K, N) activations; for a convolution its input, see `ConvShape.rows_of_input`

    Raises
    ------
    BadInput : a shape differs from the plan's
    """
    _check("A", a, (plan.m, plan.k))
    b = b if plan.source is None else plan.source.rows_of_input(b)
    _check("B", b, (plan.k, plan.n))
    from prunecast.plan.loops import Items, multiply_items, sum_groups  # numba is slow to import

    work, tiles = plan.work, plan.tiles
    items = Items(work.tile, work.token_start, work.token_stop, work.k_start, work.k_stop)
    a, b = np.ascontiguousarray(a, np.float64), np.ascontiguousarray(b, np.float64)
    inner = np.zeros((0, 0), np.bool_) if plan.inner is None else plan.inner.mask()
    c = np.zeros((plan.c_rows, plan.n))
    split = np.flatnonzero(work.group >= 0)
    slot = np.full(plan.item_count, -1, np.int64)
    slot[split] = np.arange(split.size)
    partial = np.zeros((split.size, plan.shape.block_m, plan.shape.block_n))
    in_tiles = (tiles.row_start, tiles.row_index, tiles.column_start, tiles.column_index)
    multiply_items(items, *in_tiles, inner, a, b, slot, partial, c)
    in_order = split[np.lexsort((work.part[split], work.group[split]))]
    start = np.flatnonzero(work.part[in_order] == 0)
    sum_groups(items, *in_tiles[:2], in_order, np.append(start, in_order.size), slot, partial, c)
    return c


def _check(name: str, matrix: Matrix, shape: tuple[int, int]) -> None:
    if matrix.shape != shape:
        raise BadInput(f"reference: {name} must have the plan's shape {shape}, got {matrix.shape}")
