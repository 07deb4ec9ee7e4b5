"""Importance of a model's weights while it trains, and conversions between weights and matrices (M, K)."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from prunecast.errors import BadInput, check_choice
from prunecast.patterns import CRITERIA, weigh
from prunecast.patterns.importance import ImportanceArray, checked_importance
from prunecast.patterns.sources.weight_set import select_names
from prunecast.patterns.tile_map import MaskArray

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def prunable(
    model: nn.Module, target: Sequence[str] = (), ignore: Sequence[str] = ()
) -> dict[str, nn.Parameter]:
    """Return the weights of the selected linear and convolution layers, by their names in the state dict.

    Raises
    ------
    BadInput : a selector matches no weight, or no weight is left
    """
    found = {
        f"{prefix}.weight" if prefix else "weight": cast(nn.Parameter, module.weight)
        for prefix, module in model.named_modules()
        if isinstance(module, LAYERS)
    }
    names = select_names(found, target, ignore)
    if not names:
        raise BadInput(
            f"wanted at least one weight to prune, got none of {len(found)} after target and ignore"
        )
    return {name: found[name] for name in names}


def as_matrix(tensor: torch.Tensor) -> ImportanceArray:
    """Return a copy of the tensor (M, ...) as a float32 array (M, K) on the host; float64 stays float64."""
    matrix = tensor.detach().flatten(1)
    wide = matrix if matrix.dtype == torch.float64 else matrix.float()
    array: ImportanceArray = wide.cpu().numpy().copy()
    return array


def as_mask_tensor(mask: MaskArray, like: torch.Tensor) -> torch.Tensor:
    """Return the mask (M, K) in shape, dtype and device of `like`: 1 for kept weights, 0 for pruned ones."""
    ones = torch.from_numpy(np.ascontiguousarray(mask)).to(like.device)
    return ones.reshape(like.shape).to(like.dtype)


def as_array(tensor: torch.Tensor) -> npt.NDArray[np.generic]:
    """Return a tensor as a NumPy array of the same dtype on the host; bf16 becomes `ml_dtypes.bfloat16`."""
    host = tensor.detach().cpu().contiguous()
    if host.dtype != torch.bfloat16:
        array: npt.NDArray[np.generic] = host.numpy()
        return array
    import ml_dtypes

    bits: npt.NDArray[np.generic] = host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return bits


TAYLOR = "taylor"
"""Name of the criterion that sums (weight * gradient) squared over the backward passes since the last masks
(Molchanov et al., 2019).
"""

Scores = str | Callable[[str, ImportanceArray], npt.ArrayLike] | Mapping[str, npt.ArrayLike]
"""Importance of weights: the name of a criterion, a function that returns the scores for a layer's name and
weights (M, K), or a mapping of layers to scores.
"""


class Importance:
    """Importance of the weights of `parameters`, computed whenever the schedule needs new masks.

    Parameters
    ----------
    scores : name of a criterion, a function of a layer's name and weights (M, K), or layer -> its scores
    parameters : layer -> weights (M, ...)

    Raises
    ------
    BadInput : the criterion is unknown, or a given mapping lacks a layer
    """

    def __init__(self, scores: Scores, parameters: Mapping[str, nn.Parameter]) -> None:
        if isinstance(scores, str):
            check_choice("importance", scores, (*CRITERIA, TAYLOR))
        elif isinstance(scores, Mapping):
            missing = [name for name in parameters if name not in scores]
            if missing:
                raise BadInput(f"importance: wanted scores of every layer, got none of {missing[0]!r}")
        self._scores = scores
        self._parameters = parameters
        self.gathered: dict[str, torch.Tensor] = {}
        """Layer -> scores that the backward passes since the last masks have accumulated."""

    @property
    def name(self) -> str:
        """Name of the criterion, as a recipe states it."""
        if isinstance(self._scores, str):
            return self._scores
        return "given" if isinstance(self._scores, Mapping) else "function"

    @property
    def needs_gradients(self) -> bool:
        """True if `gather` must be called in backward passes before weights can be scored."""
        return self._scores == TAYLOR

    def gather(self, name: str, gradient: torch.Tensor) -> None:
        """Add the scores of one backward pass to those of a layer; do nothing unless `needs_gradients`."""
        if not self.needs_gradients:
            return
        product = (self._parameters[name].detach() * gradient.detach()).float().square_()
        known = self.gathered.get(name)
        self.gathered[name] = product if known is None else known.add_(product)

    def of(self, name: str) -> ImportanceArray:
        """Return the current importance (M, K) of a layer.

        Raise BadInput if `taylor` is used without a backward pass before, or if the scores cannot rank
        weights.
        """
        if self.needs_gradients:
            return checked_importance(name, self._taylor(name))
        weights = as_matrix(self._parameters[name])
        if isinstance(self._scores, str):
            return weigh(name, weights, self._scores)
        given = self._scores[name] if isinstance(self._scores, Mapping) else self._scores(name, weights)
        return weigh(name, weights, np.asarray(given).reshape(weights.shape[0], -1))

    def _taylor(self, name: str) -> ImportanceArray:
        if name not in self.gathered:
            raise BadInput(
                f"importance {TAYLOR} of {name!r} needs gradients: wanted at least one backward pass before "
                "masks are due; give the schedule a delay"
            )
        return as_matrix(self.gathered.pop(name))
