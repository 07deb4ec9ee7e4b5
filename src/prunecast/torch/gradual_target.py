"""`GradualTarget`: intermediate masks, computed on the device, that approach given final masks."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray

__all__ = ["GradualTarget"]


class GradualTarget:
    """Intermediate masks of gradual pruning: in each layer, the least important weights to prune are removed
    first.

    Only weights outside of the final mask are removed.

    Parameters
    ----------
    final : layer -> bool mask (M, K), for every layer of `parameters`
    parameters : layer -> weights (M, ...)
    scores : layer -> importance (M, K)

    Raises
    ------
    BadInput : `final` has other layers than `parameters`, or a mask has another shape than the weights
    """

    def __init__(
        self,
        final: Mapping[str, MaskArray],
        parameters: Mapping[str, nn.Parameter],
        scores: Mapping[str, ImportanceArray],
    ) -> None:
        if set(final) != set(parameters):
            other = sorted(set(final) ^ set(parameters))[0]
            raise BadInput(f"final masks must be of the layers that are pruned, got another set: {other!r}")
        self.removed_at: dict[str, torch.Tensor] = {}
        """Layer -> share of the pruning at which each weight is removed."""
        for name, parameter in parameters.items():
            wanted = (parameter.shape[0], parameter[0].numel())
            if final[name].shape != wanted:
                raise BadInput(f"final mask of {name!r} must have shape {wanted}, got {final[name].shape}")
            self.removed_at[name] = _removal_times(final[name], scores[name], parameter)

    def mask(self, name: str, share: float) -> torch.Tensor:
        """Return the mask of a layer when `share` (0 to 1) of its final pruning is done.

        The mask has the shape of the weights, in float32: 1 for kept weights, 0 for pruned ones.
        """
        removed_at = self.removed_at[name]
        return (removed_at >= share).to(removed_at.dtype)


def _removal_times(final: MaskArray, scores: ImportanceArray, like: torch.Tensor) -> torch.Tensor:
    """Return the share of the pruning at which each weight is removed, in [0, 1); 2 for kept weights.

    The least important weights are removed first.
    """
    pruned = torch.from_numpy(np.ascontiguousarray(~final)).to(like.device).flatten()
    order = (
        torch.from_numpy(np.ascontiguousarray(scores, np.float32)).to(like.device).flatten()[pruned].argsort()
    )
    places = torch.empty_like(order)
    places[order] = torch.arange(len(order), device=like.device)
    removed_at = torch.full((final.size,), 2.0, device=like.device)
    removed_at[pruned] = places.double().div(max(len(order), 1)).float().clamp_max(1.0 - 2.0**-24)
    return removed_at.reshape(like.shape)
