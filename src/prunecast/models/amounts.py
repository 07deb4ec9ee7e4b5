"""How much of everything a plan does, read off its warp programs, whatever the GPU."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from prunecast.kernels.plan import KernelPlan
from prunecast.kernels.program import When
from prunecast.models.terms import Clip, FloatArray, Section, Table, Term, Unit, table_of

__all__ = ["Amounts", "plan_amounts"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Amounts:
    """Amounts of one plan; every matrix has one column per `Quantity`.

    Parameters
    ----------
    steps : (items, quantities) float64, the k-steps of each item (`fill` and `step`)
    edges : the same for what stands around them (`begin` and `end`)
    block : (quantities,) once per block (`start` and `finish`)
    step : (quantities,) one full k-step of a full tile in the middle of an item
    step_count, tokens : (items,) float64
    tensor_warps : warps of a block among which its tensor work is spread
    """

    steps: FloatArray
    edges: FloatArray
    block: FloatArray
    step: FloatArray
    step_count: FloatArray
    tokens: FloatArray
    tensor_warps: float

    @property
    def items(self) -> FloatArray:
        """(items, quantities): steps and edges together."""
        return self.steps + self.edges

    def total(self, blocks: int) -> FloatArray:
        """(quantities,) of the whole launch with so many blocks."""
        return np.asarray(self.steps.sum(axis=0) + self.edges.sum(axis=0) + blocks * self.block)


class _Items(NamedTuple):
    """Properties of the items that terms are made of, each (items,) float64."""

    steps: FloatArray
    columns: FloatArray
    rows_share: FloatArray
    tokens_share: FloatArray
    parts: FloatArray
    owner: FloatArray


def plan_amounts(plan: KernelPlan) -> Amounts:
    """Amounts of every item of a plan, clipped to its rows, tokens and kept columns as the programs say.

    Packed weights and indices move whole steps (16 kept columns at a time where the program says so);
    rows of B are clipped to the item's tokens, C and partial sums to its rows and tokens.
    """
    table = table_of(plan.programs)
    items = _items_of(plan)
    parts = np.zeros((len(table.terms), plan.item_count))
    for row, term in zip(parts, table.terms, strict=True):
        if term.section not in (Section.START, Section.FINISH):
            row[:] = _measure(term, items, plan)
    in_steps = np.array(
        [term.section in (Section.FILL, Section.STEP) for term in table.terms], dtype=np.bool_
    )
    in_block = np.array(
        [term.section in (Section.START, Section.FINISH) for term in table.terms], dtype=np.bool_
    )
    return Amounts(
        steps=parts[in_steps].T @ table.weights[in_steps],
        edges=parts[~in_steps].T @ table.weights[~in_steps],
        block=table.weights[in_block].sum(axis=0),
        step=_full_step(table, plan),
        step_count=items.steps,
        tokens=items.tokens_share * plan.shape.block_n,
        tensor_warps=table.tensor_warps,
    )


def _items_of(plan: KernelPlan) -> _Items:
    work, shape = plan.work, plan.shape
    return _Items(
        steps=plan.steps_per_item.astype(np.float64),
        columns=(work.k_stop - work.k_start).astype(np.float64),
        rows_share=plan.tiles.rows_per_tile[work.tile] / shape.block_m,
        tokens_share=(work.token_stop - work.token_start) / shape.block_n,
        parts=work.parts.astype(np.float64),
        owner=work.owner.astype(np.float64),
    )


def _measure(term: Term, items: _Items, plan: KernelPlan) -> FloatArray:
    """(items,): what the term's coefficients are multiplied with."""
    measure = _executions(term, items, plan)
    if term.clip is Clip.TOKENS:
        measure = measure * items.tokens_share
    elif term.clip in (Clip.AREA, Clip.AREA_OF_PARTS):
        measure = measure * items.tokens_share * items.rows_share
    if term.clip is Clip.AREA_OF_PARTS:
        measure = measure * (items.parts - 1.0)
    if term.when is When.PARTIAL:
        measure = measure * (1.0 - items.owner)
    elif term.when is When.OWNER:
        measure = measure * items.owner * (items.parts > 1)
    elif term.when is When.FINAL:
        measure = measure * items.owner
    return measure


def _executions(term: Term, items: _Items, plan: KernelPlan) -> FloatArray:
    """(items,): executions, k16 groups or kept columns of the steps that the term acts on."""
    steps = items.steps
    first, stop = np.zeros_like(steps), steps
    if term.section is Section.BEGIN:
        stop = np.ones_like(steps)
    elif term.section is Section.FILL:
        stop = np.minimum(max(plan.resources.stages - 1, 0), steps)
    elif term.section is Section.END:
        first = steps - 1.0
    if not term.on_step:
        return np.ones_like(steps) if term.section is Section.END else stop
    first, stop = np.clip(first + term.shift, 0.0, steps), np.minimum(stop + term.shift, steps)
    return np.maximum(_up_to(stop, term.unit, items, plan) - _up_to(first, term.unit, items, plan), 0.0)


def _up_to(step: FloatArray, unit: Unit, items: _Items, plan: KernelPlan) -> FloatArray:
    """(items,): units in the first `step` steps of each item."""
    block_k = plan.shape.block_k
    if unit is Unit.ONCE:
        return step
    if unit is Unit.COLUMNS:
        return np.minimum(step * block_k, items.columns)
    before_last = np.maximum(items.steps - 1.0, 0.0)
    groups = before_last * -(-block_k // 16) + np.ceil((items.columns - before_last * block_k) / 16.0)
    return np.asarray(np.minimum(step * -(-block_k // 16), groups))


def _full_step(table: Table, plan: KernelPlan) -> FloatArray:
    """(quantities,) of one step in the middle of a long item of full size."""
    units = {Unit.ONCE: 1.0, Unit.K16: float(-(-plan.shape.block_k // 16))}
    units[Unit.COLUMNS] = float(plan.shape.block_k)
    measure = [units[term.unit] if term.section is Section.STEP else 0.0 for term in table.terms]
    return np.asarray(np.array(measure) @ table.weights)
