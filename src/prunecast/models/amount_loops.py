"""Jitted loops of `amounts.py` and `traffic.py`: terms for each kind of item; what of A and B is read again.

NumPy took a quarter of an estimate for terms: twenty of a few kinds, ten calls each.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.jit import inner, njit
from prunecast.models.terms import Clip, FloatArray, ProgramSection, Unit
from prunecast.plan.program import When

START, BEGIN, FILL = int(ProgramSection.START), int(ProgramSection.BEGIN), int(ProgramSection.FILL)
END, FINISH = int(ProgramSection.END), int(ProgramSection.FINISH)
IntArray = npt.NDArray[np.int64]
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


@inner()
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


@inner()
def _applies(when, sizes, j):
    """Share of the items of kind j to which the term applies: 0 or 1."""
    if when == PARTIAL:
        return 1.0 - sizes.owner[j]
    if when == OWNER:
        return sizes.owner[j] if sizes.parts[j] > 1.0 else 0.0
    if when == FINAL:
        return sizes.owner[j]
    return 0.0 if when == EDGE and sizes.tokens_share[j] >= 1.0 else 1.0


@inner()
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


@inner()
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


class RowsOfItems(NamedTuple):
    """Rows of B that items read, with the columns of A cut into segments of equal length."""

    key: IntArray
    """(items,): range of tokens, 0 <= key < keys."""
    size: FloatArray
    """(items,): bytes of the range, all rows."""
    start: FloatArray
    """(items,): first column, in segments."""
    stop: FloatArray
    density: FloatArray
    """(items,): share of the rows of a segment that the tile reads."""
    abreast: IntArray
    """(items,): 0 <= group < items: items of a token range that share what they read in a wave; others of
    the range find nothing there of what these have read."""
    segments: int
    keys: int


@njit()
def fetch_again(order, wave, a_key, a_bytes, b, c_bytes, capacity, a_keys, out_read, out_waits):
    """Bytes of A and B that must be read from DRAM more than once; see `traffic.py` for the model.

    `out_read` (waves,), all zero, becomes the bytes of A and B that DRAM reads in each wave; `out_waits`
    (items,) the share of an item's k-steps that wait for DRAM. Items of the first wave run in step: all wait
    for the data that one of them is the first to read. Later only the first reader of A or of rows waits.

    order, wave : (items,) int64, items in the order they run, and the wave each runs in, ascending
    a_key : (items,) int64, 0 <= key < a_keys: the piece of A
    a_bytes : (items,) float64, size of the piece of A
    b : `RowsOfItems`
    c_bytes : (items,) float64, what the item writes
    """
    a_wave, b_wave = np.full(a_keys, -1, np.int64), np.full(b.keys, -1, np.int64)
    # What had been touched when the wave of the last use began: two uses lie that far apart, as every item
    # of a wave uses its pieces from the wave's begin to its end.
    a_mark, b_mark = np.zeros(a_keys), np.zeros(b.keys)
    segments = (b.keys, b.segments)
    in_wave, in_cache, ever = np.zeros(segments), np.zeros(segments), np.zeros(segments)
    lead = np.full(b.keys, -1, np.int64)
    group_wave, of_group = np.full(order.size, -1, np.int64), np.zeros((order.size, b.segments))
    touched, at_begin, again = 0.0, 0.0, 0.0
    this_wave = np.int64(-1)
    for i in order:
        a, key, w = a_key[i], b.key[i], wave[i]
        if w != this_wave:
            this_wave = w
            at_begin = touched
        reads_a = a_wave[a] < 0
        if a_wave[a] != w:
            lost = a_wave[a] >= 0 and at_begin - a_mark[a] > capacity
            if lost:
                again += a_bytes[i]
            if lost or a_wave[a] < 0:
                out_read[w] += a_bytes[i]
                reads_a = True
            a_wave[a] = w
            a_mark[a] = at_begin
            touched += a_bytes[i]
        group = b.abreast[i]
        if b_wave[key] != w:
            if at_begin - b_mark[key] > capacity:
                in_cache[key] = 0.0
            b_wave[key] = w
            b_mark[key] = at_begin
            in_wave[key] = 0.0
            lead[key] = group
        if group_wave[group] != w:
            group_wave[group] = w
            of_group[group] = 0.0
        missed, wanted, size = 0.0, 0.0, b.size[i] / b.segments
        for s in range(int(b.start[i]), int(np.ceil(b.stop[i]))):
            covered = min(b.stop[i], s + 1.0) - max(b.start[i], float(s))
            share = covered * b.density[i]
            fetched = (1.0 - in_cache[key, s]) * share
            if group != lead[key]:
                fetched = (1.0 - of_group[group, s]) * share
            of_group[group, s] += (1.0 - of_group[group, s]) * share
            missed += fetched
            wanted += share
            first = (1.0 - ever[key, s]) * share
            new_in_wave = (1.0 - in_wave[key, s]) * share
            again += (fetched - first) * size
            out_read[w] += fetched * size
            touched += new_in_wave * size
            in_cache[key, s] += (1.0 - in_cache[key, s]) * share
            ever[key, s] += first
            in_wave[key, s] += new_in_wave
        touched += c_bytes[i]
        out_waits[i] = 1.0 if w == 0 or reads_a else missed / max(wanted, 1e-9)
    return again
