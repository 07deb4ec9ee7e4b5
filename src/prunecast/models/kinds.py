"""Which items of a plan are alike: same rows, tokens, kept columns and part in a split."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.models.terms import FloatArray
from prunecast.plan.kernel_plan import KernelPlan

__all__ = ["ItemKinds", "item_kinds"]

Index = npt.NDArray[np.int64]

LARGEST_TABLE = 2**22
"""Keys below this are counted in a table, which takes a tenth of the time of sorting them."""


class ItemKinds(NamedTuple):
    """Items by kind."""

    of_item: Index
    """(items,): kind of each item."""
    example: Index
    """(kinds,): an item of each kind."""
    members: FloatArray
    """(kinds,): how many items are of it."""


def item_kinds(plan: KernelPlan) -> ItemKinds:
    """The kinds of a plan's items, in the order of their sizes."""
    key = _keys(plan)
    highest = int(key.max(initial=-1)) + 1
    if highest > LARGEST_TABLE:
        key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        highest = int(key.max(initial=-1)) + 1
    example = np.full(highest, -1, np.int64)
    example[key] = np.arange(key.size)
    there = np.flatnonzero(example >= 0)
    number = np.zeros(highest, np.int64)
    number[there] = np.arange(there.size)
    return ItemKinds(
        of_item=number[key],
        example=example[there],
        members=np.bincount(key, minlength=highest)[there].astype(np.float64),
    )


def _keys(plan: KernelPlan) -> Index:
    """(items,): the same number for items that are alike."""
    work = plan.work
    if not plan.item_count:
        return np.zeros(0, np.int64)
    key, span = np.zeros(plan.item_count, np.int64), 1
    for size in (
        work.k_stop - work.k_start,
        work.token_stop - work.token_start,
        plan.tiles.rows_per_tile[work.tile],
        work.parts,
        work.owner,
    ):
        least, most = int(size.min()), int(size.max())
        if least == most:
            continue
        if span > 2**40:
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
            span = int(key.max()) + 1
        key = key * (most - least + 1) + (size - least)
        span *= most - least + 1
    return key
