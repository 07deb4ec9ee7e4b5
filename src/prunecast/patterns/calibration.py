"""Importance by what a layer is given: |weight| times the root mean square of its input.

A weight matters as little as the input that it multiplies (Wanda: Sun et al., "A Simple and Effective
Pruning Approach for Large Language Models", ICLR 2024). A calibration file holds, under the name of each
layer, the mean square of each of its K input features over some text or pictures;
`prunecast.torch.input_squares` makes one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray, checked_importance
from prunecast.patterns.sources.read import open_tensors


class Calibration:
    """Mean squares of layers' inputs.

    Parameters
    ----------
    source : what they were read from, for messages
    squares : layer -> (K,), finite and not negative
    """

    def __init__(self, source: str, squares: Mapping[str, npt.NDArray[Any]]) -> None:
        self.source, self._squares = source, squares

    def weigh(self, name: str, importance: ImportanceArray) -> ImportanceArray:
        """Importance (M, K) of a layer times the root mean square of each of its inputs.

        Raises
        ------
        BadInput : nothing is known of the layer, or of another number of features
        """
        given = self._squares.get(name)
        if given is None:
            raise BadInput(f"{self.source}: wanted mean squares of every layer's input, got none of {name!r}")
        if given.shape != importance.shape[1:]:
            raise BadInput(f"{self.source}: {name!r}: wanted {importance.shape[1]} values, got {given.shape}")
        roots = np.sqrt(checked_importance(name, given[None, :]))
        return (importance * roots).astype(importance.dtype, copy=False)


def read_calibration(path: str | Path) -> Calibration:
    """A `.safetensors` or `.npz` file of one vector for each layer. Raises BadInput if it is none."""
    return Calibration(str(path), {name: tensor.load() for name, tensor in open_tensors(Path(path)).items()})
