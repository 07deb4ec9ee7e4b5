"""Numba loops for the layout of the balanced kernel, which `layout.py` describes."""

import numpy as np

from prunecast.jit import inner, njit

GROUP_ROWS = 16
"""Rows of a group, as in `layout.py`. Kind: CUDA source, `matrix.cu`."""


@njit()
def count_dense(row_start, column_index, m, window, window_count, rest, dense):
    """Fill `dense` (groups of 16 rows, windows of columns) with the number of columns that are multiplied for
    all rows of a group.
    """
    masks = np.zeros(window_count * window, np.uint16)
    chosen = np.zeros(window, np.bool_)
    left = np.zeros(GROUP_ROWS, np.int64)
    for group in range(dense.shape[0]):
        _gather(row_start, column_index, m, group, masks)
        for w in range(window_count):
            dense[group, w] = _choose(masks[w * window : (w + 1) * window], rest, chosen, left)


@njit()
def write_records(
    row_start, column_index, m, window, window_count, rest, column_bytes, start, words, rows, columns
):
    """Fill the records of all groups and windows; the record of (group, window) begins at 16-byte word
    start[group, window].

    All three arrays must contain only padding before the call. `words` (n, 4) uint32 receives the positions
    of values; `rows` and `columns` (n, 4) receive the row and column in A of each value.
    """
    masks = np.zeros(window_count * window, np.uint16)
    chosen = np.zeros(window, np.bool_)
    left = np.zeros(GROUP_ROWS, np.int64)
    place = np.zeros(GROUP_ROWS, np.int64)
    for group in range(start.shape[0]):
        _gather(row_start, column_index, m, group, masks)
        for w in range(window_count):
            own = masks[w * window : (w + 1) * window]
            count = _choose(own, rest, chosen, left)
            pairs = (count + 1) // 2
            first = start[group, w]
            rest_at = first + 8 * pairs
            places_at = rest_at + 4 * rest
            columns_at = rest_at + 6 * rest
            padding = np.uint32(window * column_bytes)
            for i in range((pairs + 3) // 4 * 8):
                _write_column(words, columns_at, i, padding)
            for i in range(GROUP_ROWS * rest):
                _write_column(words, places_at, i, padding)
            place[:] = 0
            i = 0
            for j in range(window):
                if own[j] == 0:
                    continue
                column = w * window + j
                if chosen[j]:
                    for r in range(GROUP_ROWS):
                        if (own[j] >> r) & 1:
                            at = first + (i * GROUP_ROWS + r) // 4
                            rows[at, r % 4], columns[at, r % 4] = group * GROUP_ROWS + r, column
                    _write_column(words, columns_at, i, np.uint32(j * column_bytes))
                    i += 1
                    continue
                for r in range(GROUP_ROWS):
                    if (own[j] >> r) & 1:
                        e = place[r]
                        # [row of the quarter][pair][quarter][element of the pair]
                        at = 8 * ((r % 4) * (rest // 2) + e // 2) + 2 * (r // 4) + e % 2
                        word = rest_at + at // 4
                        rows[word, at % 4], columns[word, at % 4] = group * GROUP_ROWS + r, column
                        _write_column(words, places_at, at, np.uint32(j * column_bytes))
                        place[r] = e + 1


@inner()
def _write_column(words, at, i, offset):
    """Write 16 bits at position i of a list that begins at word `at`."""
    word, shift = at + i // 8, 16 * (i % 2)
    old = words[word, i // 2 % 4]
    words[word, i // 2 % 4] = (old & ~(np.uint32(0xFFFF) << np.uint32(shift))) | (offset << np.uint32(shift))


@inner()
def _gather(row_start, column_index, m, group, masks):
    """Set bit r of masks[column] if row r of the group keeps the column."""
    masks[:] = 0
    for r in range(min(GROUP_ROWS, m - group * GROUP_ROWS)):
        row = group * GROUP_ROWS + r
        for i in range(row_start[row], row_start[row + 1]):
            masks[column_index[i]] |= np.uint16(1 << r)


@inner()
def _choose(masks, rest, chosen, left):
    """Make columns of a window dense until no row has more than `rest` elements in the other columns. Return
    the number of dense columns.

    Each step chooses the column that is kept by most of the rows with more than `rest` elements in the other
    columns. A tie goes to the column that most of all rows keep, then to the first column.
    """
    chosen[:] = False
    left[:] = 0
    for j in range(masks.size):
        for r in range(GROUP_ROWS):
            left[r] += (masks[j] >> r) & 1
    over = 0
    for r in range(GROUP_ROWS):
        over |= (left[r] > rest) << r
    count = 0
    while over:
        best, best_score = 0, -1
        for j in range(masks.size):
            if chosen[j]:
                continue
            score = 32 * _popcount(masks[j] & over) + _popcount(masks[j])
            if score > best_score:
                best, best_score = j, score
        chosen[best] = True
        count += 1
        for r in range(GROUP_ROWS):
            left[r] -= (masks[best] >> r) & 1
            if left[r] <= rest:
                over &= ~(1 << r)
    return count


@inner()
def _popcount(x):
    x = x - ((x >> 1) & 0x5555)
    x = (x & 0x3333) + ((x >> 2) & 0x3333)
    x = (x + (x >> 4)) & 0x0F0F
    return (x + (x >> 8)) & 0x1F
