"""Jitted loops of `amounts.py`: work counts per kind of item.

Work counts are sums of about twenty terms (`terms.py`). Computing them with NumPy needed ten calls per term
and a quarter of the time of an estimate.
"""

from typing import NamedTuple

import numpy as np

from prunecast.jit import inner, njit
from prunecast.models.terms import Clip, FloatArray, ProgramSection, Unit
from prunecast.plan.program import When

START, BEGIN, FILL = int(ProgramSection.START), int(ProgramSection.BEGIN), int(ProgramSection.FILL)
END, FINISH = int(ProgramSection.END), int(ProgramSection.FINISH)
ONCE, COLUMNS = int(Unit.ONCE), int(Unit.COLUMNS)
TOKENS, AREA, AREA_OF_PARTS = int(Clip.TOKENS), int(Clip.AREA), int(Clip.AREA_OF_PARTS)
PARTS = int(Clip.PARTS)
PARTIAL, OWNER, FINAL = int(When.PARTIAL), int(When.OWNER), int(When.FINAL)
EDGE, REFILL = int(When.EDGE), int(When.REFILL)


class Sizes(NamedTuple):
    """Sizes of each kind of work item, from which its work counts are computed; each (kinds,) float64."""

    steps: FloatArray
    """Number of k-steps."""
    columns: FloatArray
    """Number of kept columns."""
    multiplied: FloatArray
    """Kept columns, plus columns of zeros (`KernelPlan.padded`, `KernelPlan.fewest_steps`)."""
    rows_share: FloatArray
    """Rows divided by `block_m`."""
    tokens_share: FloatArray
    """Tokens divided by `block_n`."""
    parts: FloatArray
    """Number of k-slices of the tile; 1 if the tile is not split."""
    owner: FloatArray
    """1 if the item writes C, else 0."""


@njit()
def measure_terms(terms, sizes, block_k, stages, refill_from):
    """Return the count of each term in an item of each kind, (terms, kinds) float64.

    A term stands for all instructions of a block with equal conditions (`terms._Term`). Its count is the
    number of executions, of groups of 16 columns, or of kept columns (the term's unit), times the factor for
    items smaller than a full tile. It is 0 for terms of `start` and `finish`, which run once per block.

    Parameters
    ----------
    terms : (terms, 6) int64, the fields of `terms._Term` in order
    sizes : `Sizes`
    block_k : columns of a k-step
    stages : pipeline stages of a block
    refill_from : first k-step of an item that reuses a pipeline stage; infinite if this depends on the
        position of the item in its block. REFILL terms then count 0: their waits are part of the sampled
        time of a k-step (`block_times`)
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


@inner()
def _clipped(clip, sizes, j):
    """Return the work of an item of kind j relative to a full tile; `clip` is a number of `terms.Clip`."""
    if clip == TOKENS:
        return sizes.tokens_share[j]
    if clip == PARTS:
        return sizes.parts[j] - 1.0
    area = sizes.tokens_share[j] * sizes.rows_share[j]
    if clip == AREA:
        return area
    return area * (sizes.parts[j] - 1.0) if clip == AREA_OF_PARTS else 1.0


@inner()
def _applies(when, sizes, j):
    """Return 1 if items of kind j meet the condition `when`, a number of `program.When`; else 0."""
    if when == PARTIAL:
        return 1.0 - sizes.owner[j]
    if when == OWNER:
        return sizes.owner[j] if sizes.parts[j] > 1.0 else 0.0
    if when == FINAL:
        return sizes.owner[j]
    return 0.0 if when == EDGE and sizes.tokens_share[j] >= 1.0 else 1.0


@inner()
def _executions(term, sizes, j, block_k, stages, refill_from):
    """Return the count of a term in an item of kind j: executions, groups of 16 columns, or kept columns."""
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


@inner()
def _up_to(step, unit, sizes, j, block_k):
    """Return the number of k-steps, kept columns or groups of 16 columns in the first `step` k-steps.

    `unit` (a number of `terms.Unit`) selects which of them are counted, in an item of kind j.
    """
    if unit == ONCE:
        return step
    if unit == COLUMNS:
        return min(step * block_k, sizes.columns[j])
    groups_per_step = np.ceil(block_k / 16.0)
    before_last = max(sizes.steps[j] - 1.0, 0.0)
    groups = before_last * groups_per_step + np.ceil((sizes.multiplied[j] - before_last * block_k) / 16.0)
    return min(step * groups_per_step, groups)
