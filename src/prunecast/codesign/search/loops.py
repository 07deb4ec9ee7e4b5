"""Numba loops of the allocation: the concave hull of a layer's options, and a step of the dynamic program."""

import numpy as np

from prunecast.jit import njit


@njit()
def keep_hull(seconds, importance, options):  # type: ignore[no-untyped-def]
    """Move the options on the upper concave hull to the front of `options`; return their number.

    Parameters
    ----------
    seconds, importance : time and retained importance of every option, (options,)
    options : indices of the Pareto-optimal options, fastest first; changed in place
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
    """Add one layer to the dynamic program; return the highest importance that each grid cell can reach.

    Cell i is a time budget of i grid steps.

    Parameters
    ----------
    options : indices of the layer's Pareto-optimal options, fastest first
    cells : time of every option in grid steps, (options,)
    importance : retained importance of every option, (options,)
    value : highest importance of each cell without this layer, (cells,)
    taken : output (cells,), index of the layer's option for each cell; the first of equally good ones
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
