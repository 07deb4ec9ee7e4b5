"""Importance by what a layer is given: |weight| times the root mean square of its input.

A weight matters as little as the input that it multiplies (Wanda: Sun et al., "A Simple and Effective
Pruning Approach for Large Language Models", ICLR 2024). A calibration file holds, under the name of each
layer, the mean square of each of its K input features over some text or pictures
(`prunecast.torch.input_squares` makes one), or the means of all their products, (K, K)
(`prunecast.torch.input_moments`). With these a weight counts as the loss that remains when the others of its
row make up for it (Optimal Brain Surgeon, B. Hassibi and D. Stork, 1992), and kept weights are updated so.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray, checked_importance
from prunecast.patterns.sources.read import open_tensors
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.weight_update import least_loss, updated_weights


class Calibration:
    """Mean squares or second moments of layers' inputs.

    Parameters
    ----------
    source : what they were read from, for messages
    squares : layer -> (K,), finite and not negative; or second moments (K, K)
    """

    def __init__(self, source: str, squares: Mapping[str, npt.NDArray[Any]]) -> None:
        self.source, self._squares = source, squares
        self._losses: dict[str, npt.NDArray[Any]] = {}

    def weigh(self, name: str, importance: ImportanceArray) -> ImportanceArray:
        """Importance (M, K) of a layer times the root mean square of each of its inputs; with second moments
        of the part that other inputs cannot make up for.

        Raises
        ------
        BadInput : nothing is known of the layer, or of another number of features
        """
        given = self._given(name)
        if given.ndim == 2:
            if name not in self._losses:
                self._losses[name] = least_loss(given)
            given = self._losses[name]
        if given.shape != importance.shape[1:]:
            raise BadInput(f"{self.source}: {name!r}: wanted {importance.shape[1]} values, got {given.shape}")
        roots = np.sqrt(checked_importance(name, given[None, :]))
        return (importance * roots).astype(importance.dtype, copy=False)

    def update(self, name: str, weights: npt.NDArray[Any], mask: MaskArray) -> npt.NDArray[Any]:
        """Weights (M, K) with zeros, of their dtype; with second moments the others make up for what is gone.

        Raises
        ------
        BadInput : nothing is known of the layer, or of another number of features
        """
        given = self._given(name)
        if given.ndim < 2:
            return np.where(mask, weights, weights.dtype.type(0))
        return updated_weights(weights.astype(np.float64), mask, given).astype(weights.dtype)

    def _given(self, name: str) -> npt.NDArray[Any]:
        if name not in self._squares:
            raise BadInput(f"{self.source}: wanted mean squares of every layer's input, got none of {name!r}")
        return self._squares[name]


def read_calibration(path: str | Path) -> Calibration:
    """A `.safetensors` or `.npz` file of a vector or matrix for each layer. Raises BadInput if it is none."""
    return Calibration(str(path), {name: tensor.load() for name, tensor in open_tensors(Path(path)).items()})
