"""Kept weights that make up for pruned ones, from the second moments of a layer's inputs.

The output of a layer changes least, in the mean square over its inputs, if each row of kept weights is the
least-squares fit of that row's dense output; rows that keep the same columns, as those of a tile, are solved
together. SparseGPT (E. Frantar and D. Alistarh, ICML 2023) does the same one column after another, which
patterns of single elements need; for tiles the exact solution is cheaper.
"""

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.tile_map import MaskArray

FloatArray = npt.NDArray[np.float64]

DAMPING = 0.01
"""Share of the mean of H's diagonal that is added to it: inputs that hardly vary move no weight far. Kind:
convention, SparseGPT's."""


def updated_weights(
    weights: npt.NDArray[np.floating], mask: MaskArray, moments: npt.NDArray[np.floating]
) -> FloatArray:
    """Weights (M, K) as float64, zero where `mask` is False, that compensate for what it prunes.

    Parameters
    ----------
    weights : (M, K), before pruning
    mask : (M, K), True where weights stay
    moments : (K, K), mean of x x^T over inputs x of the layer; symmetric, no eigenvalue below 0

    Raises
    ------
    BadInput : shapes that do not fit, or moments that are not finite
    """
    if mask.shape != weights.shape or moments.shape != (weights.shape[1],) * 2:
        raise BadInput(
            f"weight update: weights {weights.shape} need a mask of that shape and moments (K, K), got "
            f"{mask.shape} and {moments.shape}"
        )
    from scipy.linalg import cho_factor, cho_solve  # slow to import

    h = damped(moments)
    found = np.where(mask, weights, 0.0).astype(np.float64)
    alike, group_of = np.unique(np.packbits(mask, axis=1), axis=0, return_inverse=True)
    for group in range(len(alike)):
        rows = np.flatnonzero(group_of.ravel() == group)
        kept = mask[rows[0]]
        if kept.any() and not kept.all():
            lost = weights[np.ix_(rows, np.flatnonzero(~kept))].astype(np.float64)
            factor = cho_factor(h[np.ix_(kept, kept)], overwrite_a=True, check_finite=False)
            found[np.ix_(rows, np.flatnonzero(kept))] += cho_solve(factor, h[np.ix_(kept, ~kept)] @ lost.T).T
    return found


def least_loss(moments: npt.NDArray[np.floating]) -> FloatArray:
    """(K,): 1 / diag(H^-1), by how much the mean square of an output rises if a weight of 1 is pruned and the
    others of its row make up for it. Raises BadInput.
    """
    inverse: FloatArray = 1.0 / np.diag(np.linalg.inv(damped(moments)))
    return inverse


def damped(moments: npt.NDArray[np.floating]) -> FloatArray:
    """H with a diagonal that can be inverted. Raises BadInput for values that are not finite."""
    h = moments.astype(np.float64)
    if h.ndim != 2 or h.shape[0] != h.shape[1] or not np.isfinite(h).all():
        raise BadInput(f"second moments must be finite, (K, K), got {h.shape}")
    mean = float(np.diag(h).mean())
    h[np.diag_indices_from(h)] += DAMPING * mean if mean > 0.0 else 1.0
    return h
