"""The jitted loop of `amounts.py`: what each term of a table is multiplied with, for each kind of item.

NumPy took a quarter of an estimate for it: twenty terms of a few kinds, ten calls each.
"""

from typing import NamedTuple

import numpy as np

from prunecast.jit import njit
from prunecast.models.terms import Clip, FloatArray, Section, Unit
from prunecast.plan.program import When

START, BEGIN, FILL = int(Section.START), int(Section.BEGIN), int(Section.FILL)
END, FINISH = int(Section.END), int(Section.FINISH)
ONCE, COLUMNS = int(Unit.ONCE), int(Unit.COLUMNS)
TOKENS, AREA, AREA_OF_PARTS = int(Clip.TOKENS), int(Clip.AREA), int(Clip.AREA_OF_PARTS)
PARTS = int(Clip.PARTS)
PARTIAL, OWNER, FINAL = int(When.PARTIAL), int(When.OWNER), int(When.FINAL)
EDGE, REFILL = int(When.EDGE), int(When.REFILL)


class Sizes(NamedTuple):
    """Properties of the kinds of items that terms are made of, each (kinds,) float64."""

    steps: FloatArray
    columns: FloatArray
    multiplied: FloatArray
    """Columns, and zeros beside them that make up the fewest steps."""
    rows_share: FloatArray
    tokens_share: FloatArray
    parts: FloatArray
    owner: FloatArray


@njit()
def measure_terms(terms, sizes, block_k, stages, refill_from):
    """(terms, kinds) float64: 0 where a term stands in the block's own sections.

    terms : (terms, 6) int64, the fields of `Term` in order
    refill_from : step of an item from which all are beyond its block's first ring; endless where that is a
        matter of the block, and only the waits count, in the pace
    """
    found = np.zeros((terms.shape[0], sizes.steps.size))
    for t in range(terms.shape[0]):
        section, clip, when = terms[t, 0], terms[t, 4], terms[t, 5]
        if section in (START, FINISH):
            continue
        for j in range(sizes.steps.size):
            counted = _executions(terms[t], sizes, j, block_k, stages, refill_from)
            found[t, j] = counted * _clipped(clip, sizes, j) * _applies(when, sizes, j)
    return found


@njit()
def _clipped(clip, sizes, j):
    """Share of a full tile that counts."""
    if clip == TOKENS:
        return sizes.tokens_share[j]
    if clip == PARTS:
        return sizes.parts[j] - 1.0
    area = sizes.tokens_share[j] * sizes.rows_share[j]
    if clip == AREA:
        return area
    return area * (sizes.parts[j] - 1.0) if clip == AREA_OF_PARTS else 1.0


@njit()
def _applies(when, sizes, j):
    """Share of the items of kind j to which the term applies: 0 or 1."""
    if when == PARTIAL:
        return 1.0 - sizes.owner[j]
    if when == OWNER:
        return sizes.owner[j] if sizes.parts[j] > 1.0 else 0.0
    if when == FINAL:
        return sizes.owner[j]
    return 0.0 if when == EDGE and sizes.tokens_share[j] >= 1.0 else 1.0


@njit()
def _executions(term, sizes, j, block_k, stages, refill_from):
    """Executions, k16 groups or kept columns of the steps that the term acts on."""
    section, on_step, shift, unit = term[0], term[1], term[2], term[3]
    steps = sizes.steps[j]
    first, stop = 0.0, steps
    if section == BEGIN:
        stop = 1.0
    elif section == FILL:
        stop = min(max(stages - 1.0, 0.0), steps)
    elif section == END:
        first = steps - 1.0
    if term[5] == REFILL:
        first = min(max(first, refill_from), stop)
    if not on_step:
        return 1.0 if section == END else stop - first
    first, stop = min(max(first + shift, 0.0), steps), min(stop + shift, steps)
    before = _up_to(first, unit, sizes, j, block_k)
    return max(_up_to(stop, unit, sizes, j, block_k) - before, 0.0)


@njit()
def _up_to(step, unit, sizes, j, block_k):
    """Units in the first `step` steps of an item."""
    if unit == ONCE:
        return step
    if unit == COLUMNS:
        return min(step * block_k, sizes.columns[j])
    groups_per_step = np.ceil(block_k / 16.0)
    before_last = max(sizes.steps[j] - 1.0, 0.0)
    groups = before_last * groups_per_step + np.ceil((sizes.multiplied[j] - before_last * block_k) / 16.0)
    return min(step * groups_per_step, groups)
