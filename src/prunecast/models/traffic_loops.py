"""Jitted loops of `traffic.py`: what of A and B must be read again, and what each item reads.

Arrays named `out_*` are changed in place.
"""

import numpy as np

from prunecast.jit import njit


@njit()
def count_different(numbers, below):
    """How many different numbers there are, none of them below 0 nor above `below` - 1."""
    there = np.zeros(below, np.bool_)
    for number in numbers:
        there[number] = True
    return there.sum()


@njit()
def fetch_again(order, wave, a_key, b_key, a_bytes, b_bytes, c_bytes, b_share, capacity, a_keys, b_keys):
    """Bytes of A and B that must be read from DRAM more than once; see `traffic.py` for the model.

    order, wave : (items,) int64, items in the order they run, and the wave each runs in, ascending
    a_key, b_key : (items,) int64, 0 <= key < a_keys or b_keys: the piece of A and the token range of B
    a_bytes : (items,) float64, size of the piece of A
    b_bytes : (items,) float64, size of the token range of B, all columns
    c_bytes : (items,) float64, what the item writes
    b_share : (items,) float64, share of the columns that the item reads
    """
    a_wave, b_wave = np.full(a_keys, -1, np.int64), np.full(b_keys, -1, np.int64)
    # What had been touched when the wave of the last use began: two uses lie that far apart, as every item
    # of a wave uses its pieces from the wave's begin to its end.
    a_mark, b_mark = np.zeros(a_keys), np.zeros(b_keys)
    in_wave, in_cache, ever = np.zeros(b_keys), np.zeros(b_keys), np.zeros(b_keys)
    touched, at_begin, again = 0.0, 0.0, 0.0
    this_wave = np.int64(-1)
    for i in order:
        a, b, w = a_key[i], b_key[i], wave[i]
        if w != this_wave:
            this_wave = w
            at_begin = touched
        if a_wave[a] != w:
            if a_wave[a] >= 0 and at_begin - a_mark[a] > capacity:
                again += a_bytes[i]
            a_wave[a] = w
            a_mark[a] = at_begin
            touched += a_bytes[i]
        if b_wave[b] != w:
            if at_begin - b_mark[b] > capacity:
                in_cache[b] = 0.0
            b_wave[b] = w
            b_mark[b] = at_begin
            in_wave[b] = 0.0
        fetched = (1.0 - in_cache[b]) * b_share[i]
        first = (1.0 - ever[b]) * b_share[i]
        new_in_wave = (1.0 - in_wave[b]) * b_share[i]
        again += (fetched - first) * b_bytes[i]
        touched += new_in_wave * b_bytes[i] + c_bytes[i]
        in_cache[b] += fetched
        ever[b] += first
        in_wave[b] += new_in_wave
    return again
