"""Random weights of standard models, in place of trained ones.

Rows and columns of trained matrices differ in scale by factors (outlier features); a lognormal factor per
column and row stands for that. Without it all columns would be alike and every pattern equally good.
"""

from collections.abc import Sequence

import numpy as np

from prunecast.patterns.importance import ImportanceArray

KEPT_DENSE = ("stem", "classifier", "head", "fc8")
"""First and last layers of the standard models: they are customarily not pruned."""
ROUTER = ".router"
"""Products that choose the experts of a token are not pruned either."""
ROWS_AT_A_TIME = 32
"""Rows that a cache holds while they are scaled."""


def is_pruned(name: str) -> bool:
    """Whether a product of a standard model is one that is customarily pruned."""
    return name not in KEPT_DENSE and not name.endswith(ROUTER)


def heavy_tailed(shape: tuple[int, int], seed: Sequence[int]) -> ImportanceArray:
    """Magnitudes of a matrix (M, K), float32, that depend on the seed alone."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal(shape, np.float32)
    of_column = np.exp(0.5 * rng.standard_normal(shape[1], np.float32))
    of_row = np.exp(0.3 * rng.standard_normal((shape[0], 1), np.float32))
    for first in range(0, shape[0], ROWS_AT_A_TIME):
        rows = weights[first : first + ROWS_AT_A_TIME]
        rows *= of_column
        rows *= of_row[first : first + ROWS_AT_A_TIME]
        np.abs(rows, out=rows)
    return weights
