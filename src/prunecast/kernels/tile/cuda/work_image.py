"""A plan's work list as the tile kernel reads it: the very columns, two records of four numbers per item."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.tile.cuda.pack import stage_starts
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import KernelPlan, Schedule

__all__ = ["MOST_BLOCKS_IN_ARGS", "WorkImage", "work_image"]

MOST_BLOCKS_IN_ARGS = 160
"""Blocks whose first item and list bounds fit into the launch arguments."""
FEWEST_STEPS = 2
WHOLE, PART, OWNER = 0, 1, 2


class WorkImage(NamedTuple):
    """Records of all items, in the order of the plan; the fields are those of `tile_args.cuh`."""

    items: IntArray
    """(items, 4): first stage; k-steps, 16-column groups of the last, owner or not; tile; first token."""
    splits: IntArray
    """(items, 4): workspace slot, parts to wait for, reduction group, what to do."""
    start: IntArray
    """(blocks + 1,): items of block b; empty where every block has the item of its own number."""
    slots: int
    """Partial tiles of C in the workspace."""
    groups: int
    """Split tiles of C."""

    def into(self, args: npt.NDArray[np.void]) -> None:
        """Write list bounds and first items into launch arguments, for plans that walk lists."""
        if not self.start.size:
            return
        args["blocks_in_args"] = self.start.size - 1
        args["start"][0, : self.start.size] = self.start
        has_items = np.flatnonzero(np.diff(self.start))
        args["first"][0, has_items] = self.items[self.start[has_items]]


def work_image(plan: KernelPlan) -> WorkImage:
    """The records of `plan`.

    Raises
    ------
    BadInput : the plan draws its items from a counter, splits between k-steps, or lets a part other than the
        first own a split tile
    """
    _check(plan)
    in_plan = plan.schedule is Schedule.STATIC
    return WorkImage(
        items=_items(plan),
        splits=_splits(plan),
        start=plan.work.block_start if in_plan else np.zeros(0, np.int32),
        slots=int((plan.work.owner == 0).sum()),
        groups=int(plan.work.group.max(initial=-1)) + 1,
    )


def _check(plan: KernelPlan) -> None:
    work, block_k = plan.work, plan.shape.block_k
    if plan.schedule is Schedule.DYNAMIC:
        raise BadInput(f"{plan.kernel}: the tile kernel walks fixed lists, the plan's schedule is dynamic")
    if plan.schedule is Schedule.STATIC and plan.blocks > MOST_BLOCKS_IN_ARGS:
        raise BadInput(f"{plan.kernel}: at most {MOST_BLOCKS_IN_ARGS} persistent blocks, got {plan.blocks}")
    whole_end = work.k_stop == plan.tiles.kept_per_tile[work.tile]
    if np.any(work.k_start % block_k) or np.any((work.k_stop % block_k != 0) & ~whole_end):
        raise BadInput(f"{plan.kernel}: parts of a split tile must begin at multiples of {block_k} columns")
    if np.any(work.token_stop != np.minimum(work.token_start + plan.shape.block_n, plan.n)):
        raise BadInput(f"{plan.kernel}: items must take {plan.shape.block_n} tokens, or all that are left")
    if np.any((work.owner == 1) & (work.part != 0)):
        raise BadInput(f"{plan.kernel}: part 0 of a split tile must own it")


def _items(plan: KernelPlan) -> IntArray:
    work, block_k = plan.work, plan.shape.block_k
    columns = work.k_stop.astype(np.int64) - work.k_start
    steps = -(-columns // block_k)  # those that are filled up not counted
    groups_of_last = -(-(columns - (steps - 1) * block_k) // 16)
    # Items that are filled up end in the null stage, of which one group is enough
    groups_of_last = np.where(steps >= FEWEST_STEPS, groups_of_last, 1)
    first = stage_starts(plan.tiles)[work.tile] + work.k_start // block_k
    is_owner = ((work.owner == 1) & (work.parts > 1)).astype(np.int64)
    record = (first, steps | groups_of_last << 24 | is_owner << 27, work.tile, work.token_start)
    return np.ascontiguousarray(np.stack(record, axis=1).astype(np.int32))


def _splits(plan: KernelPlan) -> IntArray:
    """Slots of a group follow one another in order of part, the owner knows the first of them."""
    work = plan.work
    group = np.maximum(work.group, 0)  # of whole items, whose record is cleared below
    others = np.bincount(group, weights=work.owner == 0).astype(np.int64)
    first_slot = np.cumsum(others) - others
    is_owner = work.owner == 1
    slot = first_slot[group] + np.where(is_owner, 0, work.part - 1)
    action = np.where(work.parts == 1, WHOLE, np.where(is_owner, OWNER, PART))
    record = np.stack((slot, work.parts - 1, group, action), axis=1)
    return np.ascontiguousarray(np.where(action[:, None] == WHOLE, 0, record).astype(np.int32))
