"""Numba loops of the allocation: the concave hull of a menu, and one layer of the dynamic program."""

import numpy as np

from prunecast.jit import njit


@njit()
def keep_hull(seconds, importance, options):  # type: ignore[no-untyped-def]
    """Move the options on the upper concave hull to the front of `options`; return their number.

    `options` are undominated, the fastest first.
    """
    size = 0
    for option in options:
        while size > 1:
            last, before = options[size - 1], options[size - 2]
            rate = (importance[last] - importance[before]) / (seconds[last] - seconds[before])
            if rate > (importance[option] - importance[last]) / (seconds[option] - seconds[last]):
                break
            size -= 1
        options[size] = option
        size += 1
    return size


@njit()
def fill_grid(options, cells, importance, value, taken):  # type: ignore[no-untyped-def]
    """Return the most importance at each cell of the grid after one more layer.

    Parameters
    ----------
    options : undominated options of the layer, the fastest first
    cells : time of every option, in cells
    value : most importance at each cell before the layer
    taken : filled with the option that the layer takes at each cell; the first of equals
    """
    best = np.full(value.size, -np.inf)
    for option in options:
        shift, gain = cells[option], importance[option]
        for place in range(shift, value.size):
            candidate = value[place - shift] + gain
            if candidate > best[place]:
                best[place] = candidate
                taken[place] = option
    return best
