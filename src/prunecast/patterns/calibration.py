"""Importance from a layer's inputs: |weight| times the root mean square of the input that it multiplies.

A weight matters little if its input is small (Wanda: Sun et al., "A Simple and Effective Pruning Approach for
Large Language Models", ICLR 2024). A calibration file contains, under the name of each layer, the mean square
of each of its K input features over some text or images (`prunecast.torch.input_squares` makes one), or the
second moments, means of the products of all pairs of features, shape (K, K)
(`prunecast.torch.input_moments`). With second moments the importance of a weight is the loss that remains
after the other weights of its row are updated to compensate (Optimal Brain Surgeon, B. Hassibi and D. Stork,
1992), and the kept weights are updated.

The update minimises the mean squared error of a layer's output over its inputs: each pruned row becomes the
least-squares fit of its dense output. Rows that keep the same columns, as those of a tile do, are solved
together. SparseGPT (E. Frantar and D. Alistarh, ICML 2023) solves the same problem one column after another,
which unstructured patterns need; for tiles the exact solution is cheaper.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray, checked_importance
from prunecast.patterns.sources.readers import open_tensors
from prunecast.patterns.sources.stored_tensor import failures_named
from prunecast.patterns.tile_map import MaskArray

FloatArray = npt.NDArray[np.float64]
EXPERTS = "layers.{layer}.experts"
"""Key under which a calibration file stores the saliencies of all experts of the layer with this number."""


class Calibration:
    """Mean squares or second moments of the inputs of layers.

    Parameters
    ----------
    source : origin of the data, for messages
    squares : layer -> mean squares (K,), finite and not negative; or second moments (K, K)
    """

    def __init__(self, source: str, squares: Mapping[str, npt.NDArray[Any]]) -> None:
        self.source, self._squares = source, squares
        self._losses: dict[str, npt.NDArray[Any]] = {}

    def weigh(self, name: str, importance: ImportanceArray) -> ImportanceArray:
        """Return the importance (M, K) of a layer times the root mean square of each of its inputs.

        With second moments, the factor is the root of the loss that the other weights cannot compensate
        (`least_loss`).

        Raises
        ------
        BadInput : no data for the layer, or data for another number of features
        """
        given = self._given(name)
        if given.ndim == 2:
            if name not in self._losses:
                self._losses[name] = least_loss(given, f"{self.source}: {name!r}: second moments")
            given = self._losses[name]
        if given.shape != importance.shape[1:]:
            raise BadInput(f"{self.source}: {name!r}: wanted {importance.shape[1]} values, got {given.shape}")
        roots = np.sqrt(checked_importance(name, given[None, :]))
        return (importance * roots).astype(importance.dtype, copy=False)

    def update(self, name: str, weights: npt.NDArray[Any], mask: MaskArray) -> npt.NDArray[Any]:
        """Return the weights (M, K), in their dtype, with those outside of the mask set to zero.

        With second moments, the kept weights are updated to minimise the error of the layer's output.

        Raises
        ------
        BadInput : no data for the layer, or data for another number of features
        """
        given = self._given(name)
        if given.ndim < 2:
            return np.where(mask, weights, weights.dtype.type(0))
        return updated_weights(weights.astype(np.float64), mask, given).astype(weights.dtype)

    def expert_saliency(self, layer: int) -> FloatArray | None:
        """Return the saliency of each expert of a layer, (experts,) float64; None if the file lacks it."""
        given = self._squares.get(EXPERTS.format(layer=layer))
        return None if given is None else given.astype(np.float64)

    def of_columns(self, columns: Mapping[str, tuple[str, npt.NDArray[np.int64] | None]]) -> "Calibration":
        """Return the statistics of new layers, each of which reads some inputs of a layer of this file.

        A new layer whose original has no data in this file is omitted.

        Parameters
        ----------
        columns : new layer -> layer of the file, and indices of the inputs that remain (None for all)
        """
        found = {}
        for name, (old, index) in columns.items():
            if old in self._squares:
                given = self._squares[old]
                if index is not None:
                    given = given[index] if given.ndim == 1 else given[np.ix_(index, index)]
                found[name] = given
        return Calibration(self.source, found)

    def _given(self, name: str) -> npt.NDArray[Any]:
        if name not in self._squares:
            wanted = f"{self.source}: wanted mean squares of every layer's input"
            raise BadInput(f"{wanted}, got none of {name!r}: ignore leaves it out")
        return self._squares[name]


def read_calibration(path: str | Path) -> Calibration:
    """Read a `.safetensors` or `.npz` file with moments of the inputs of each layer.

    These are mean squares (K,) or second moments (K, K). Raises BadInput if the file cannot be read.
    """
    found = {}
    for name, tensor in open_tensors(Path(path)).items():
        with failures_named(Path(path), name):
            found[name] = tensor.load()
    return Calibration(str(path), found)


DAMPING = 0.01
"""Fraction of the mean diagonal of H that is added to its diagonal, so that inputs with little variance do
not change weights much. Kind: convention, SparseGPT's.
"""


def updated_weights(
    weights: npt.NDArray[np.floating], mask: MaskArray, moments: npt.NDArray[np.floating]
) -> FloatArray:
    """Return pruned weights (M, K), float64, whose kept weights are updated to minimise the output error.

    Parameters
    ----------
    weights : (M, K), before pruning
    mask : (M, K), True where weights are kept
    moments : (K, K), mean of x x^T over the inputs x of the layer; symmetric, no negative eigenvalue

    Raises
    ------
    BadInput : shapes that do not match, or moments that are not finite
    """
    if mask.shape != weights.shape or moments.shape != (weights.shape[1],) * 2:
        raise BadInput(
            f"weight update: weights {weights.shape} need a mask of that shape and moments (K, K), got "
            f"{mask.shape} and {moments.shape}"
        )
    from scipy.linalg import cho_factor, cho_solve  # slow to import

    h = damped(moments)
    found = np.where(mask, weights, 0.0).astype(np.float64)
    # Rows with the same mask share one Cholesky factorisation
    alike, group_of = np.unique(np.packbits(mask, axis=1), axis=0, return_inverse=True)
    for group in range(len(alike)):
        rows = np.flatnonzero(group_of.ravel() == group)
        kept = mask[rows[0]]
        if kept.any() and not kept.all():
            lost = weights[np.ix_(rows, np.flatnonzero(~kept))].astype(np.float64)
            factor = cho_factor(h[np.ix_(kept, kept)], overwrite_a=True, check_finite=False)
            found[np.ix_(rows, np.flatnonzero(kept))] += cho_solve(factor, h[np.ix_(kept, ~kept)] @ lost.T).T
    return found


def least_loss(moments: npt.NDArray[np.floating], what: str = "second moments") -> FloatArray:
    """Return 1 / diag(H^-1), (K,) float64: loss of pruning a weight of 1 if its row compensates for it.

    H is the damped matrix of second moments (K, K). The loss is the increase of the mean squared error of the
    output. Raises BadInput, in the same cases as `damped`, with a message that begins with `what`.
    """
    inverse: FloatArray = 1.0 / np.diag(np.linalg.inv(damped(moments, what)))
    return inverse


def damped(moments: npt.NDArray[np.floating], what: str = "second moments") -> FloatArray:
    """Return second moments H (K, K) as float64, with a larger diagonal, so that H can be inverted.

    Raises BadInput if `moments` is not a square matrix or has values that are not finite. The message begins
    with `what`.
    """
    h = moments.astype(np.float64)
    if h.ndim != 2 or h.shape[0] != h.shape[1] or not np.isfinite(h).all():
        raise BadInput(f"{what} must be finite, (K, K), got {h.shape}")
    mean = float(np.diag(h).mean())
    h[np.diag_indices_from(h)] += DAMPING * mean if mean > 0.0 else 1.0
    return h
