"""Jitted loops of `amounts.py` and `traffic.py`: terms for each kind of item; what of A and B is read again.

NumPy took a quarter of an estimate for terms: twenty of a few kinds, ten calls each.
"""

from typing import NamedTuple

import numpy as np

from prunecast.jit import inner, njit
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


@njit()
def fetch_again(
    order,
    wave,
    a_key,
    b_key,
    abreast,
    a_bytes,
    b_bytes,
    c_bytes,
    b_share,
    is_slice,
    capacity,
    a_keys,
    b_keys,
    out_read,
):
    """Bytes of A and B that must be read from DRAM more than once; see `traffic.py` for the model.

    `out_read` (waves,), all zero, becomes the bytes of A and B that DRAM reads in each wave.

    order, wave : (items,) int64, items in the order they run, and the wave each runs in, ascending
    a_key, b_key : (items,) int64, 0 <= key < a_keys or b_keys: the piece of A and the token range of B
    a_bytes : (items,) float64, size of the piece of A
    b_bytes : (items,) float64, size of the token range of B, all columns
    c_bytes : (items,) float64, what the item writes
    b_share : (items,) float64, share of the columns that the item reads
    abreast : (items,) int64, 0 <= key < items: items of a token range that share what they read in a wave;
        others of the range find nothing there of what these have read
    is_slice : (items,) bool, whether columns of the tile lie before the item's: slices of a tile have none in
        common, while tiles have as many as chance gives them
    """
    a_wave, b_wave = np.full(a_keys, -1, np.int64), np.full(b_keys, -1, np.int64)
    # What had been touched when the wave of the last use began: two uses lie that far apart, as every item
    # of a wave uses its pieces from the wave's begin to its end.
    a_mark, b_mark = np.zeros(a_keys), np.zeros(b_keys)
    in_wave, in_cache, ever = np.zeros(b_keys), np.zeros(b_keys), np.zeros(b_keys)
    lead = np.full(b_keys, -1, np.int64)
    group_wave, of_group = np.full(order.size, -1, np.int64), np.zeros(order.size)
    touched, at_begin, again = 0.0, 0.0, 0.0
    this_wave = np.int64(-1)
    for i in order:
        a, b, w = a_key[i], b_key[i], wave[i]
        if w != this_wave:
            this_wave = w
            at_begin = touched
        if a_wave[a] != w:
            lost = a_wave[a] >= 0 and at_begin - a_mark[a] > capacity
            if lost:
                again += a_bytes[i]
            if lost or a_wave[a] < 0:
                out_read[w] += a_bytes[i]
            a_wave[a] = w
            a_mark[a] = at_begin
            touched += a_bytes[i]
        if b_wave[b] != w:
            if at_begin - b_mark[b] > capacity:
                in_cache[b] = 0.0
            b_wave[b] = w
            b_mark[b] = at_begin
            in_wave[b] = 0.0
            lead[b] = abreast[i]
        group = abreast[i]
        if group_wave[group] != w:
            group_wave[group] = w
            of_group[group] = 0.0
        fetched = (1.0 - in_cache[b]) * b_share[i]
        if group != lead[b]:
            fetched = (1.0 - of_group[group]) * b_share[i]
        of_group[group] += (1.0 - of_group[group]) * b_share[i]
        first = (1.0 - ever[b]) * b_share[i]
        if is_slice[i]:
            first = min(1.0 - ever[b], b_share[i])
        new_in_wave = (1.0 - in_wave[b]) * b_share[i]
        again += (fetched - first) * b_bytes[i]
        out_read[w] += fetched * b_bytes[i]
        touched += new_in_wave * b_bytes[i] + c_bytes[i]
        in_cache[b] += (1.0 - in_cache[b]) * b_share[i]
        ever[b] += first
        in_wave[b] += new_in_wave
    return again
