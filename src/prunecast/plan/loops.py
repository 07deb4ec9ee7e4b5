"""Numba loops: longest-first assignment, item-by-item multiplication, and reduction of split-K slices."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.jit import inner, njit, prange


@njit()
def fill_longest_first(order, cost, load, heap, block_of_item):  # type: ignore[no-untyped-def]
    """Assign the items of `order` one by one to the least loaded block, the lower block number on a tie.

    `heap` contains block numbers as a binary heap by (load, block). It must start as 0, 1, 2, ... with zero
    loads.
    """
    size = np.int64(heap.size)
    for item in order:
        block = heap[0]
        block_of_item[item] = block
        load[block] += cost[item]
        # Restore the heap: sift the block at the root down, because its load has increased
        place = np.int64(0)
        while True:
            child = 2 * place + 1
            if child >= size:
                break
            right = child + 1
            if right < size and _comes_first(load, heap[right], heap[child]):
                child = right
            if not _comes_first(load, heap[child], block):
                break
            heap[place] = heap[child]
            place = child
        heap[place] = block


@inner()
def _comes_first(load, block, other):  # type: ignore[no-untyped-def]
    return load[block] < load[other] or (load[block] == load[other] and block < other)


class Items(NamedTuple):
    """Columns of a work list that define an item's tile, tokens and kept columns; each (items,) int32."""

    tile: npt.NDArray[np.int32]
    token_start: npt.NDArray[np.int32]
    token_stop: npt.NDArray[np.int32]
    k_start: npt.NDArray[np.int32]
    k_stop: npt.NDArray[np.int32]


@njit(parallel=True)
def multiply_items(items, row_start, row_index, column_start, column_index, inner, a, b, slot, partial, c):
    """Add the products of unsplit items to `c`, and the products of k-slices to `partial` (slots, block_m,
    block_n).
    """
    for i in prange(items.tile.size):
        tile, t0, t1 = items.tile[i], items.token_start[i], items.token_stop[i]
        first = column_start[tile]
        columns = column_index[first + items.k_start[i] : first + items.k_stop[i]]
        rows = row_index[row_start[tile] : row_start[tile + 1]]
        for r in range(rows.size):
            if slot[i] < 0:
                out = c[rows[r] % c.shape[0], t0:t1]
                _multiply_row(rows[r], columns, inner, a, b[:, t0:t1], out)
            else:
                _multiply_row(rows[r], columns, inner, a, b[:, t0:t1], partial[slot[i], r, : t1 - t0])


@inner()
def _multiply_row(row, columns, inner, a, b, out):
    for column in columns:
        if inner.size > 0 and not inner[row, column]:
            continue
        weight = a[row, column]
        for token in range(out.size):
            out[token] += weight * b[column, token]


@njit(parallel=True)
def sum_groups(items, row_start, row_index, in_order, group_start, slot, partial, c):
    """Add the partial sums of all k-slices of every reduction group, in ascending order of `WorkList.part`,
    and write the result to `c`.
    """
    for g in prange(group_start.size - 1):
        for place in range(group_start[g], group_start[g + 1]):
            i = in_order[place]
            t0, t1 = items.token_start[i], items.token_stop[i]
            rows = row_index[row_start[items.tile[i]] : row_start[items.tile[i] + 1]]
            for r in range(rows.size):
                for token in range(t0, t1):
                    c[rows[r] % c.shape[0], token] += partial[slot[i], r, token - t0]
