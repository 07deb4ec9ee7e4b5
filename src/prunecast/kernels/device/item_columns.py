"""A plan's work items as CUDA kernels count them: in stages, with workspace slots for tiles split along K."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.tile_stages import stage_starts
from prunecast.plan.kernel_plan import KernelPlan, Schedule

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class ItemColumns(NamedTuple):
    """One entry per item, in the order of the plan; the records of all kernels of tiles are made of these."""

    first: Longs
    """Stage that it begins with."""
    columns: Longs
    """Kept columns."""
    steps: Longs
    """Stages that these lie in."""
    tile: Longs
    token: Longs
    """First token."""
    is_part: Flags
    """Whether it is one of several parts of a tile that is split along K."""
    is_owner: Flags
    """Whether it is the part that adds the others up."""
    slot: Longs
    """Workspace slot of its partial sums; the owner knows the first of the others'. 0 for whole items."""
    waits: Longs
    """Parts that the owner waits for."""
    group: Longs
    """Number of the split tile; 0 for whole items."""
    slots: int
    """Partial tiles of C in the workspace."""
    groups: int
    """Split tiles of C."""


def item_columns(plan: KernelPlan, step: int, kernel: str) -> ItemColumns:
    """The items of `plan`, in stages of `step` columns.

    Parameters
    ----------
    kernel : in refusals

    Raises
    ------
    BadInput : the plan draws its items from a counter, splits inside a stage, leaves tokens of a block out,
        or lets a part other than the first own a split tile
    """
    _check(plan, step, kernel)
    work = plan.work
    columns = work.k_stop.astype(np.int64) - work.k_start
    is_part, is_owner = work.parts > 1, work.owner == 1
    group = np.where(is_part, work.group, 0).astype(np.int64)
    others = np.bincount(group, weights=is_part & ~is_owner).astype(np.int64)
    first_slot = np.cumsum(others) - others
    slot = first_slot[group] + np.where(is_owner, 0, work.part - 1)
    return ItemColumns(
        first=stage_starts(plan.tiles, step)[work.tile].astype(np.int64) + work.k_start // step,
        columns=columns,
        steps=-(-columns // step),
        tile=work.tile.astype(np.int64),
        token=work.token_start.astype(np.int64),
        is_part=is_part,
        is_owner=is_part & is_owner,
        slot=np.where(is_part, slot, 0),
        waits=np.where(is_part, work.parts - 1, 0),
        group=group,
        slots=int(np.count_nonzero(work.owner == 0)),
        groups=int(work.group.max(initial=-1)) + 1,
    )


def _check(plan: KernelPlan, step: int, kernel: str) -> None:
    work = plan.work
    if plan.schedule is Schedule.DYNAMIC:
        raise BadInput(f"{plan.kernel}: {kernel} walks fixed lists, the plan's schedule is dynamic")
    whole_end = work.k_stop == plan.tiles.kept_per_tile[work.tile]
    if np.any(work.k_start % step) or np.any((work.k_stop % step != 0) & ~whole_end):
        raise BadInput(f"{plan.kernel}: parts of a split tile must begin at multiples of {step} columns")
    if np.any(work.token_stop != np.minimum(work.token_start + plan.shape.block_n, plan.n)):
        raise BadInput(f"{plan.kernel}: items must take {plan.shape.block_n} tokens, or all that are left")
    if np.any((work.owner == 1) & (work.part != 0)):
        raise BadInput(f"{plan.kernel}: part 0 of a split tile must own it")
