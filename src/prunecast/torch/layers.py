"""Weights of a PyTorch model as matrices (M, K): which can be pruned, and the way there and back."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.sources.weight_set import select_names
from prunecast.patterns.tile_map import MaskArray

__all__ = ["as_array", "as_mask_tensor", "as_matrix", "prunable"]

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def prunable(
    model: nn.Module, target: Sequence[str] = (), ignore: Sequence[str] = ()
) -> dict[str, nn.Parameter]:
    """Weights of linear and convolution layers that the selectors take, by their names in the state dict.

    Raises
    ------
    BadInput : a selector without a match, or no weight left
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
    """A copy of the tensor (M, ...) as a float32 array (M, K) on the host; float64 stays float64."""
    matrix = tensor.detach().flatten(1)
    wide = matrix if matrix.dtype == torch.float64 else matrix.float()
    array: ImportanceArray = wide.cpu().numpy().copy()
    return array


def as_mask_tensor(mask: MaskArray, like: torch.Tensor) -> torch.Tensor:
    """The mask (M, K) in shape, dtype and device of `like`: ones where it keeps."""
    ones = torch.from_numpy(np.ascontiguousarray(mask)).to(like.device)
    return ones.reshape(like.shape).to(like.dtype)


def as_array(tensor: torch.Tensor) -> npt.NDArray[np.generic]:
    """Any tensor as an array of the same format; bf16 becomes `ml_dtypes.bfloat16`."""
    host = tensor.detach().cpu().contiguous()
    if host.dtype != torch.bfloat16:
        array: npt.NDArray[np.generic] = host.numpy()
        return array
    import ml_dtypes

    bits: npt.NDArray[np.generic] = host.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return bits
