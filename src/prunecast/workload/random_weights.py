"""Random weights of standard models.

Rows and columns of trained matrices differ in scale by large factors (outlier features). Random weights
imitate this by a lognormal factor per column and per row. Otherwise all columns would have nearly the same
importance, and every pattern would retain the same.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

SCALED_AT_A_TIME = 2**17
"""Elements that are scaled at a time, so that they fit a cache."""
MOST_DRAWN = 2**28
"""Most elements of a random matrix in a table of predictions. Drawing such a matrix needs a gigabyte."""
MOST_REMEMBERED_WEIGHTS = 2**27
"""Most elements of a model whose random weights are cached (half a gigabyte); larger
models draw them again."""
MOST_NORMALS = 2**26
"""Most normal numbers drawn for one matrix. Drawing them needs 1.5 seconds."""
HELD_TOGETHER = 2**23
"""Approximate number of normal numbers in one array. Arrays of this size return their memory to the system
when they are freed."""


def heavy_tailed(
    shape: tuple[int, int], seed: Sequence[int], dtype: npt.DTypeLike = np.float32
) -> npt.NDArray[Any]:
    """Return the magnitudes of a random matrix (M, K), rounded from float32 to `dtype`.

    The numbers depend only on shape and seed. Above `MOST_NORMALS` elements, the rows of normal numbers are
    repeated; repeated rows differ only in scale.
    """
    rng = np.random.default_rng(seed)
    step = max(SCALED_AT_A_TIME // shape[1], 1)
    drawn = min(shape[0], max(MOST_NORMALS // shape[1] // step, 1) * step)
    held = max(HELD_TOGETHER // shape[1] // step, 1) * step
    starts = range(0, drawn, held)
    parts = [rng.standard_normal((min(held, drawn - start), shape[1]), np.float32) for start in starts]
    of_column = np.exp(0.5 * rng.standard_normal(shape[1], np.float32))
    of_row = np.exp(0.3 * rng.standard_normal((shape[0], 1), np.float32))
    weights = np.empty(shape, dtype)
    for start in starts:
        normals = parts.pop(0)  # weights need the memory of the numbers that have been scaled
        for again in range(start, shape[0], drawn):
            for place in range(0, len(normals), step):
                rows = weights[again + place : again + min(place + step, len(normals))]
                scaled = normals[place : place + len(rows)] * of_column
                scaled *= of_row[again + place : again + place + len(rows)]
                rows[...] = np.abs(scaled, out=scaled)
    return weights
