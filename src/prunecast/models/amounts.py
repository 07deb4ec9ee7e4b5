"""Work counts of a plan (instructions, bytes, tensor FMA), summed from its warp programs.

The counts do not depend on the GPU's speed. Work items with equal numbers of rows, tokens, kept and padded
columns and k-slices have equal counts if both write C or both write partial sums. They are one *kind* of
item, and counts are stored once per kind.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.launch import LaunchContext
from prunecast.models.amount_loops import Sizes, measure_terms
from prunecast.models.terms import FloatArray, ProgramSection, Quantity, Table, Unit, table_of
from prunecast.patterns.tile_map import IntArray
from prunecast.plan.kernel_plan import KernelPlan, Schedule
from prunecast.plan.program import WarpProgram

Index = npt.NDArray[np.int64]
LARGEST_TABLE = 2**22
"""Largest size of the lookup table from keys of items to kinds. Keys beyond it are sorted first, which needs
ten times as long as the table. Kind: choice, memory."""


class _ItemKinds(NamedTuple):
    """Work items grouped by kind; items of one kind have equal work counts."""

    of_item: Index
    """(items,) kind of each item."""
    example: Index
    """(kinds,) one item of each kind."""
    members: FloatArray
    """(kinds,) number of items of each kind."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Amounts:
    """Work counts of one plan: one column per `Quantity`, and one row per kind of work item.

    Items of equal size are one kind: the million items of a CSR plan are about a hundred kinds.

    Parameters
    ----------
    steps : (kinds, quantities) float64, work of the k-steps of one item (`fill` and `step`)
    edges : (kinds, quantities) float64, work of one item outside of its k-steps (`begin` and `end`)
    block : (quantities,) float64, work of a block outside of its items (`start` and `finish`)
    step : (quantities,) float64, work of one full k-step of a full tile in the middle of an item
    step_count : (kinds,) float64, k-steps of one item
    tokens : (kinds,) float64, tokens of one item
    last_k16 : (kinds,) float64, groups of 16 columns that the last k-step multiplies; 0 if the item has no
        k-steps
    kinds : kind of each item
    tile_reads : (kinds,) float64, sum over the items of a kind of (tokens of the item / tokens of its tile).
        Bytes of A per item times this number, summed over kinds, count the weights of each tile once
    tensor_warps : number of warps of a block that share its tensor work
    total : (quantities,) float64, work of the whole launch
    whole : (kinds, quantities) float64, work of one item: `steps` plus `edges`
    """

    steps: FloatArray
    edges: FloatArray
    block: FloatArray
    step: FloatArray
    step_count: FloatArray
    last_k16: FloatArray
    tokens: FloatArray
    kinds: _ItemKinds
    tile_reads: FloatArray
    tensor_warps: float
    total: FloatArray
    whole: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", self.steps + self.edges)


def plan_amounts(plan: KernelPlan) -> Amounts:
    """Return the work counts of a plan's warp programs, without the additional costs on an architecture.

    `launch_amounts` includes these costs.
    """
    return _amounts(plan, plan.programs, np.inf)


def packed_bytes(plan: KernelPlan) -> float:
    """Return the bytes of packed A and its column indices as the kernel reads them, padding included."""
    amounts = plan_amounts(plan)
    return float((amounts.whole[:, Quantity.A] + amounts.whole[:, Quantity.INDEX]) @ amounts.tile_reads)


def launch_amounts(context: LaunchContext) -> Amounts:
    """Return the work counts of a launch; items smaller than a full tile move fewer bytes.

    Packed weights and indices are read in whole k-steps, or in groups of 16 kept columns if the instruction
    is `per_k16`. Bytes of B are proportional to the item's tokens, bytes of C and of partial sums to its rows
    times its tokens.
    """
    # A co-resident block has one item, so the item's first steps are the first pipeline fill
    refill_from = float(context.plan.resources.stages) if context.co_resident else np.inf
    return _amounts(context.plan, context.programs, refill_from)


def _amounts(plan: KernelPlan, programs: tuple[WarpProgram, ...], refill_from: float) -> Amounts:
    """Return the amounts of each kind of item: executions of the terms times the weights of the terms."""
    kinds = _item_kinds(plan)
    columns = plan.work.k_stop[kinds.example] - plan.work.k_start[kinds.example]
    table = table_of(programs)
    sizes = _sizes_of(plan, kinds, columns)
    block_k, stages = float(plan.shape.block_k), float(plan.resources.stages)
    # (terms, kinds) executions of each term of the programs in an item, times (terms, quantities) weights
    parts = measure_terms(table.places, sizes, block_k, stages, refill_from)
    steps, edges = parts.T @ table.of_steps, parts.T @ table.of_edges
    return Amounts(
        steps=steps,
        edges=edges,
        block=table.of_block,
        step=_full_step(table, plan),
        step_count=sizes.steps,
        last_k16=np.ceil((sizes.multiplied - np.maximum(sizes.steps - 1.0, 0.0) * plan.shape.block_k) / 16.0),
        tokens=sizes.tokens_share * plan.shape.block_n,
        kinds=kinds,
        tile_reads=_tile_reads(plan, kinds, sizes.tokens_share * plan.shape.block_n),
        tensor_warps=table.tensor_warps,
        total=kinds.members @ steps + kinds.members @ edges + plan.blocks * table.of_block,
    )


def _tile_reads(plan: KernelPlan, kinds: _ItemKinds, tokens: FloatArray) -> FloatArray:
    if plan.experts == 1:
        return kinds.members * tokens / plan.n
    share = tokens[kinds.of_item] / plan.tokens_of_tile[plan.work.tile]
    return np.bincount(kinds.of_item, weights=share, minlength=tokens.size).astype(np.float64)


def _sizes_of(plan: KernelPlan, kinds: _ItemKinds, columns: IntArray) -> Sizes:
    """Return the sizes of the kinds of items, all (kinds,); `columns` are the columns that a kind keeps."""
    work, shape, item = plan.work, plan.shape, kinds.example
    multiplied = plan.multiplied_columns[item].astype(np.float64)
    return Sizes(
        steps=np.ceil(multiplied / shape.block_k),
        columns=columns.astype(np.float64),
        multiplied=multiplied,
        rows_share=plan.tiles.rows_per_tile[work.tile[item]] / shape.block_m,
        tokens_share=(work.token_stop[item] - work.token_start[item]) / shape.block_n,
        parts=work.parts[item].astype(np.float64),
        owner=work.owner[item].astype(np.float64),
    )


def _full_step(table: Table, plan: KernelPlan) -> FloatArray:
    """Return the work of one k-step in the middle of a long item of full size, (quantities,)."""
    units = {Unit.ONCE: 1.0, Unit.K16: float(-(-plan.shape.block_k // 16))}
    units[Unit.COLUMNS] = float(plan.shape.block_k)
    measure = [units[term.unit] if term.section is ProgramSection.STEP else 0.0 for term in table.terms]
    return np.asarray(np.array(measure) @ table.weights)


def _item_kinds(plan: KernelPlan) -> _ItemKinds:
    """Group the items of a plan by kind; kinds are in ascending order of the keys of `_keys`."""
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
    return _ItemKinds(
        of_item=number[key],
        example=example[there],
        members=np.bincount(key, minlength=highest)[there].astype(np.float64),
    )


def _keys(plan: KernelPlan) -> Index:
    """Return a key per item, (items,) int64, that is equal for items of one kind."""
    work = plan.work
    if not plan.item_count:
        return np.zeros(0, np.int64)
    key = np.zeros(plan.item_count, np.int64)
    for size in (
        work.k_stop - work.k_start,
        *(() if plan.padded is None else (plan.multiplied_columns,)),
        work.token_stop - work.token_start,
        plan.tiles.rows_per_tile[work.tile],
        work.parts,
        work.owner,
    ):
        least, most = int(size.min()), int(size.max())
        if least == most:
            continue
        if key.max() >= 2**32:  # a column has at most 2**31 sizes, and the next key must stay below 2**63
            key = np.unique(key, return_inverse=True)[1].astype(np.int64)
        key = key * (most - least + 1) + (size - least)
    return key


def units_of(plan: KernelPlan, item_values: FloatArray) -> FloatArray:
    """Return the sums of `item_values` (items, ...) over the units that are scheduled as a whole.

    A unit is a block with its list of items for the schedule STATIC, otherwise an item.
    """
    if plan.schedule is not Schedule.STATIC:
        return item_values
    sums = np.concatenate((np.zeros((1, *item_values.shape[1:])), np.cumsum(item_values, axis=0)))
    return np.asarray(sums[plan.work.block_start[1:]] - sums[plan.work.block_start[:-1]])
