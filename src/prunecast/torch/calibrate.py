"""What the layers of a model are given, for importance that knows it and weights that make up for others."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.files import aside
from prunecast.patterns import parse_pattern
from prunecast.patterns.calibration import Calibration
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch.find import find_layers, matrix_of
from prunecast.torch.importance import as_mask_tensor, as_matrix

Found = dict[str, np.ndarray[Any, Any]]


PROBE_HEIGHT, PROBED = 128, 0.5
"""Tile-wise pruning that tells what a layer costs. Own choice."""
LEAST_COST = 1e-9
"""Loss that a layer is taken to cost at least: noise may make it negative."""


def input_squares(
    model: nn.Module,
    run: Callable[[], Any],
    path: str | Path | None = None,
    *,
    loss: Callable[[], float] | None = None,
) -> Found:
    """Mean square of each input feature of each linear layer, over all passes that `run` makes.

    Parameters
    ----------
    model : on any device; it is as it was afterwards
    run : calls the model on some text or pictures, a few thousand tokens are enough
    path : of a `.safetensors` file to write, which `prunecast prune --calibrate` reads
    loss : what the model loses now, e.g. how far its outputs are from what they were. With it each layer is
        pruned by half alone, and its squares are scaled so that importance is the loss that this costs:
        layers can compete then

    Returns
    -------
    name of each weight -> (K,) float32

    Raises
    ------
    BadInput : the model has no linear layer, or a pass reached none of them
    """
    found = _gathered(model, run, lambda x: x.double().square().sum(0))
    if loss is not None:
        found = _scaled_by_loss(model, found, loss)
    _write(found, path)
    return found


def input_moments(model: nn.Module, run: Callable[[], Any], path: str | Path | None = None) -> Found:
    """Mean of x x^T over the inputs x of each linear layer, over all passes that `run` makes.

    More than `input_squares` know: which inputs can stand in for which. Takes K^2 numbers a layer, and more
    tokens than the widest layer has inputs.

    Parameters
    ----------
    model, run, path : as for `input_squares`

    Returns
    -------
    name of each weight -> (K, K) float32

    Raises
    ------
    BadInput : the model has no linear layer, or a pass reached none of them
    """
    found = _gathered(model, run, lambda x: (x.float().t() @ x.float()).double())
    _write(found, path)
    return found


@torch.no_grad()  # type: ignore[untyped-decorator]
def layer_costs(
    weights: Mapping[str, torch.Tensor], importance: Mapping[str, ImportanceArray], loss: Callable[[], float]
) -> dict[str, float]:
    """Loss that a unit of removed importance costs in each layer, measured with that layer alone pruned.

    Parameters
    ----------
    weights : layer -> its weights (M, ...) in the model; pruned in place, and put back
    importance : layer -> (M, K)
    loss : of the model as it is when it is called
    """
    whole, found = loss(), {}
    for name, weight in weights.items():
        pattern = parse_pattern(f"tile-wise:{min(PROBE_HEIGHT, weight.shape[0])}")
        mask = pattern.prune({name: importance[name]}, PROBED)[name]
        removed = float(importance[name].sum(where=~mask, dtype=np.float64))
        before = weight.clone()
        weight.mul_(as_mask_tensor(mask, weight))
        found[name] = max(loss() - whole, LEAST_COST) / max(removed, LEAST_COST)
        weight.copy_(before)
    return found


def _scaled_by_loss(model: nn.Module, squares: Found, loss: Callable[[], float]) -> Found:
    """Squares times a factor for each layer, 1 in the mean, from the loss that pruning it alone costs."""
    weights = {f"{layer.name}.weight": matrix_of(layer.module) for layer in find_layers(model)[0]}
    known = Calibration("squares", squares)
    importance = {name: known.weigh(name, np.abs(as_matrix(weights[name]))) for name in squares}
    costs = layer_costs({name: weights[name] for name in squares}, importance, loss)
    mean = float(np.mean([cost**2 for cost in costs.values()]))
    return {
        name: (square * (costs[name] ** 2 / mean)).astype(square.dtype) for name, square in squares.items()
    }


@torch.no_grad()  # type: ignore[untyped-decorator]
def update_weights(model: nn.Module, masks: Mapping[str, MaskArray], moments: Mapping[str, Any]) -> None:
    """Prune in place, and let kept weights make up for pruned ones (`patterns.weight_update`).

    Parameters
    ----------
    model : with its dense weights
    masks : name of each weight -> (M, K), True where it stays
    moments : what `input_moments` found

    Raises
    ------
    BadInput : moments of a layer are missing or of another size
    """
    known = Calibration("moments", moments)
    for name, mask in masks.items():
        weight = model.get_parameter(name)
        found = known.update(name, as_matrix(weight), mask)
        weight.copy_(torch.from_numpy(found).reshape(weight.shape))


def _gathered(
    model: nn.Module,
    run: Callable[[], Any],
    sums_of: Callable[[torch.Tensor], torch.Tensor],
) -> Found:
    """Means over tokens of what `sums_of` gives for the inputs (tokens, K) of a layer."""
    layers, _ = find_layers(model)
    sums: dict[str, torch.Tensor] = {}
    counts = dict.fromkeys((layer.name for layer in layers), 0)

    def hook_of(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            x = given[0].detach().reshape(-1, given[0].shape[-1])
            own = sums_of(x)
            sums[name] = sums[name] + own if name in sums else own
            counts[name] += x.shape[0]

        return hook

    hooks = [layer.module.register_forward_pre_hook(hook_of(layer.name)) for layer in layers]
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()
    found = {
        f"{layer.name}.weight": (sums[layer.name] / counts[layer.name]).float().cpu().numpy()
        for layer in layers
        if counts[layer.name]
    }
    if not found:
        raise BadInput(f"wanted passes through linear layers, got none of {len(layers)}")
    return found


def _write(found: Found, path: str | Path | None) -> None:
    if path is not None:
        from safetensors.numpy import save_file

        with aside(path) as unfinished:
            save_file(found, unfinished)
