"""A plan of the mma tile kernel as bytes: a record of each k-step of every block, the launch's argument."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.kernels.device.weights import uncovered_rows
from prunecast.kernels.tile.cuda.mma.pack import PackedMma
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import KernelPlan, Schedule

__all__ = ["MMA_ARGS", "MOST_BLOCKS_IN_ARGS", "WARPS", "MmaRecords", "mma_records"]

MOST_BLOCKS_IN_ARGS = 900
WARPS = 8
"""Warps of a block; each has a counter for every split tile."""
FIRST_STEP, LAST_STEP, PART, OWNER, PLACE_SHIFT = 1, 2, 4, 8, 4
"""The enum `What` in mma_args.cuh."""

_POINTERS = ("weights", "columns", "steps", "splits", "start", "rows", "bias", "partials", "counters")
MMA_ARGS = np.dtype(
    [(name, "u8") for name in (*_POINTERS, "b", "c", "clock")]
    + [(name, "i8") for name in ("b_row_bytes", "c_row_bytes")]
    + [(name, "i4") for name in ("tokens", "blocks_in_args")]
    + [("first", "i4", (MOST_BLOCKS_IN_ARGS + 4,))]
)
"""The bytes of `MmaArgs` in mma_args.cuh."""


class MmaRecords(NamedTuple):
    """What every block does: those of the plan, then blocks for rows in no tile, which multiply zeros."""

    steps: IntArray
    """(k-steps, 4): stage, first token, row list, what to do with its item."""
    splits: IntArray
    """(split items, 4): workspace slot, parts to wait for, reduction group; at least one entry."""
    start: IntArray
    """(blocks + 1,): steps of block b."""
    rows: IntArray
    """(row lists, block_m): rows of C, -1 for none."""
    slots: int
    """Partial tiles of C in the workspace."""
    groups: int
    """Split tiles of C."""

    @property
    def blocks(self) -> int:
        """To be launched."""
        return int(self.start.size) - 1

    def arguments(self, plan: KernelPlan) -> npt.NDArray[np.void]:
        """One `MMA_ARGS` record, complete but for addresses and row bytes."""
        args = np.zeros(1, MMA_ARGS)
        args["tokens"] = -(-plan.n // 8) * 8
        if self.blocks <= MOST_BLOCKS_IN_ARGS:
            args["blocks_in_args"] = 1
            args["first"][0, : self.start.size] = self.start
        return args


class _Items(NamedTuple):
    """Items of all blocks in order, those of rows in no tile last."""

    stage: IntArray
    steps: IntArray
    token: IntArray
    rows: IntArray
    what: IntArray


def mma_records(plan: KernelPlan, packed: PackedMma) -> MmaRecords:
    """The records of a plan.

    Raises
    ------
    BadInput : the plan draws its items from a counter, splits inside k-steps, leaves tokens of a block out,
        or lets a part other than the first own a split tile
    """
    _check(plan)
    work, block_n = plan.work, plan.shape.block_n
    lists = _rows_in_no_tile(plan)
    tokens = np.arange(0, plan.n, block_n, dtype=np.int32)
    alone = np.repeat(packed.rows.shape[0] + np.arange(lists.shape[0]), tokens.size)
    none = np.zeros(alone.size, np.int64)
    own = _items(plan, packed)
    items = _Items(
        stage=np.concatenate((own.stage, none + packed.null_stage)),
        steps=np.concatenate((own.steps, none + 1)),
        token=np.concatenate((own.token, np.tile(tokens, lists.shape[0]))),
        rows=np.concatenate((own.rows, alone)),
        what=np.concatenate((own.what, none)),
    )
    first_item = np.concatenate((work.block_start, work.block_start[-1] + 1 + np.arange(alone.size)))
    first_step = np.concatenate(([0], np.cumsum(items.steps)))
    return MmaRecords(
        steps=_steps(items),
        splits=_splits(plan),
        start=_int32(first_step[first_item]),
        rows=_int32(np.concatenate((packed.rows, lists))),
        slots=int((work.owner == 0).sum()),
        groups=int(work.group.max(initial=-1)) + 1,
    )


def _check(plan: KernelPlan) -> None:
    work, step = plan.work, plan.shape.block_k
    if plan.schedule is Schedule.DYNAMIC:
        raise BadInput(
            f"{plan.kernel}: the mma tile kernel walks fixed lists, the plan's schedule is dynamic"
        )
    whole_end = work.k_stop == plan.tiles.kept_per_tile[work.tile]
    if np.any(work.k_start % step) or np.any((work.k_stop % step != 0) & ~whole_end):
        raise BadInput(f"{plan.kernel}: parts of a split tile must begin at multiples of {step} columns")
    if np.any(work.token_stop != np.minimum(work.token_start + plan.shape.block_n, plan.n)):
        raise BadInput(f"{plan.kernel}: items must take {plan.shape.block_n} tokens, or all that are left")
    if np.any((work.owner == 1) & (work.part != 0)):
        raise BadInput(f"{plan.kernel}: part 0 of a split tile must own it")


def _items(plan: KernelPlan, packed: PackedMma) -> _Items:
    """Items without columns multiply the null stage."""
    work, step = plan.work, plan.shape.block_k
    count = -(-(work.k_stop.astype(np.int64) - work.k_start) // step)
    first = packed.stage_start[work.tile] + work.k_start // step
    split = work.parts > 1
    place: npt.NDArray[np.int64] = np.cumsum(split) - split
    action = np.where(work.owner == 1, OWNER, PART) | place << PLACE_SHIFT
    return _Items(
        stage=np.where(count > 0, first, packed.null_stage),
        steps=np.maximum(count, 1),
        token=work.token_start,
        rows=work.tile,
        what=np.where(split, action, 0),
    )


def _steps(items: _Items) -> IntArray:
    item = np.repeat(np.arange(items.steps.size), items.steps)
    step = np.arange(item.size) - (np.cumsum(items.steps) - items.steps)[item]
    ends = np.where(step == 0, FIRST_STEP, 0) | np.where(step == items.steps[item] - 1, LAST_STEP, 0)
    # Of the null stage there is one; no item has more of its steps
    fields = (items.stage[item] + step, items.token[item], items.rows[item], items.what[item] | ends)
    return _int32(np.stack(fields, axis=1))


def _splits(plan: KernelPlan) -> IntArray:
    """Slots of a group follow one another in order of part, the owner knows the first of them."""
    work, split = plan.work, np.flatnonzero(plan.work.parts > 1)
    if not split.size:
        return np.zeros((1, 4), np.int32)
    group, is_owner = work.group[split], work.owner[split] == 1
    others = np.bincount(group, weights=~is_owner).astype(np.int64)
    first_slot = np.cumsum(others) - others
    slot = first_slot[group] + np.where(is_owner, 0, work.part[split] - 1)
    return _int32(np.stack((slot, work.parts[split] - 1, group, np.zeros_like(group)), axis=1))


def _rows_in_no_tile(plan: KernelPlan) -> IntArray:
    """In lists of block_m."""
    alone, block_m = uncovered_rows(plan.tiles), plan.shape.block_m
    lists = np.full((-(-alone.size // block_m), block_m), -1, np.int32)
    lists.reshape(-1)[: alone.size] = alone
    return lists


def _int32(array: npt.NDArray[np.integer]) -> IntArray:
    return np.ascontiguousarray(array, np.int32)
