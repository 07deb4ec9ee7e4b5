"""Attention with a mask of keys, in float64."""

from typing import Any

import numpy as np
import numpy.typing as npt


def attended(
    queries: npt.NDArray[np.floating[Any]],
    keys: npt.NDArray[np.floating[Any]],
    values: npt.NDArray[np.floating[Any]],
    mask: npt.NDArray[np.bool_],
    scale: float,
) -> npt.NDArray[np.float64]:
    """Return the reference result of attention, (sequences, queries, heads, width), computed in float64.

    Parameters
    ----------
    queries : (sequences, heads, queries, width)
    keys, values : (sequences, key heads, keys, width)
    mask : (sequences, keys), True for keys that count; a sequence without such a key has result 0
    scale : factor of the scores
    """
    group = queries.shape[1] // keys.shape[1]
    q, k, v = (
        each.astype(np.float64) for each in (queries, np.repeat(keys, group, 1), np.repeat(values, group, 1))
    )
    scores = np.where(mask[:, None, None, :], scale * q @ k.swapaxes(2, 3), -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(largest), largest, 0.0))
    sums = weights.sum(-1, keepdims=True)
    y: npt.NDArray[np.float64] = weights @ v / np.where(sums > 0, sums, 1.0)
    return y.swapaxes(1, 2)
