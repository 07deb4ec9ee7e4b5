"""The jitted loop of the longest-first assignment."""

import numpy as np

from prunecast.jit import njit


@njit()
def fill_longest_first(order, cost, load, heap, block_of_item):  # type: ignore[no-untyped-def]
    """Give the items of `order` one by one to the block with the least load, the lower block on a tie.

    `heap` holds block numbers, a binary heap by (load, block); it must start as 0, 1, 2, ... with no load.
    """
    size = np.int64(heap.size)
    for item in order:
        block = heap[0]
        block_of_item[item] = block
        load[block] += cost[item]
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


@njit()
def _comes_first(load, block, other):  # type: ignore[no-untyped-def]
    return load[block] < load[other] or (load[block] == load[other] and block < other)
