"""Calibration: statistics of each layer's inputs, for importance and for updates of kept weights."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.files import aside
from prunecast.patterns import parse_pattern
from prunecast.patterns.calibration import EXPERTS, Calibration
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.torch.find import find_layers, matrix_of
from prunecast.torch.importance import as_mask_tensor, as_matrix

Found = dict[str, np.ndarray[Any, Any]]


PROBE_HEIGHT, PROBED = 128, 0.5
"""Tile height and sparsity of the trial pruning that measures the cost of a layer. Kind: choice."""
LEAST_COST = 1e-9
"""Lower bound of a measured loss increase, which noise can make negative, and of the removed importance."""


def input_squares(
    model: nn.Module,
    run: Callable[[], Any],
    path: str | Path | None = None,
    *,
    loss: Callable[[], float] | None = None,
) -> Found:
    """Return the mean square of each input feature of each linear layer, over all passes of `run`.

    Parameters
    ----------
    model : model on any device; its weights are not changed
    run : function that calls the model on some text or images; a few thousand tokens are enough
    path : `.safetensors` file to write, which `prunecast prune --calibrate` reads; None to write no file
    loss : function that returns the current loss of the model, e.g. the distance of its outputs from the
        original ones. If given, each layer is pruned by half while all others stay dense. Its mean squares
        are then scaled such that the sum of removed importance is proportional to the measured loss increase,
        with the same factor for all layers. This makes the importance of different layers comparable

    Returns
    -------
    name of each weight -> mean squares, (K,) float32

    Raises
    ------
    BadInput : the model has no linear layer, or no pass reached any of them
    """
    found = _gathered(model, run, lambda x: x.double().square().sum(0))
    if loss is not None:
        found = _scaled_by_loss(model, found, loss)
    _write(found, path)
    return found


def input_moments(model: nn.Module, run: Callable[[], Any], path: str | Path | None = None) -> Found:
    """Return the mean of x x^T for the input vectors x of each linear layer, over all passes of `run`.

    In contrast to `input_squares`, these moments contain the correlations between inputs. `update_weights`
    uses them to let kept weights compensate for pruned ones. They need K^2 numbers per layer, and `run` must
    process more tokens than the widest layer has inputs.

    Parameters
    ----------
    model, run, path : as for `input_squares`

    Returns
    -------
    name of each weight -> mean of x x^T, (K, K) float32

    Raises
    ------
    BadInput : the model has no linear layer, or no pass reached any of them
    """
    found = _gathered(model, run, lambda x: (x.float().t() @ x.float()).double())
    _write(found, path)
    return found


def expert_saliency(model: nn.Module, run: Callable[[], Any], path: str | Path | None = None) -> Found:
    """Return the saliency of each expert: the mean norm of its weighted output over the tokens routed to it.

    This is the criterion of REAP (M. Lasby et al., "REAP the Experts", 2025): router weight times the norm of
    the expert's output. An expert without a token has 0.

    Parameters
    ----------
    model : a transformers model with experts (MoE), where one module contains all experts of a layer
    run, path : as for `input_squares`; `prune --remove experts:SHARE --calibrate` reads the file

    Returns
    -------
    name `layers.NUMBER.experts` -> saliency of each expert, (experts,) float32

    Raises
    ------
    BadInput : the model has no such experts, or no pass reached any of them
    """
    experts = {
        int(match[1]): module
        for name, module in model.named_modules()
        if (match := re.search(r"(?:^|\.)layers\.(\d+)\..*experts$", name)) and hasattr(module, "num_experts")
    }
    sums = {layer: torch.zeros(module.num_experts).double() for layer, module in experts.items()}
    counts = {layer: torch.zeros(module.num_experts) for layer, module in experts.items()}

    def hook_of(layer: int) -> Callable[..., None]:
        def hook(module: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            for expert, norms in _weighted_norms(module, *given[:3]).items():
                sums[layer][expert] += norms.double().sum().cpu()
                counts[layer][expert] += norms.numel()

        return hook

    _run_hooked({experts[layer]: hook_of(layer) for layer in experts}, run)
    if not any(count.sum() for count in counts.values()):
        raise BadInput(f"wanted passes through experts, got none of {len(experts)} layers with experts")
    found = {
        EXPERTS.format(layer=layer): (sums[layer] / counts[layer].clamp(min=1)).float().numpy()
        for layer in experts
    }
    _write(found, path)
    return found


def _weighted_norms(
    experts: nn.Module, x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> dict[int, torch.Tensor]:
    """Return index of an expert -> router weight times norm of the expert's output, for each of its tokens.

    Parameters
    ----------
    experts : module that sums the weighted outputs of the chosen experts; it is called without its hooks
    x : (tokens, features) inputs
    chosen, weights : (tokens, experts per token) indices of the chosen experts, and their router weights
    """
    found = {}
    for expert in chosen.unique().tolist():
        token, place = (chosen == expert).nonzero(as_tuple=True)
        only = torch.full((len(token), 1), expert, dtype=chosen.dtype, device=chosen.device)
        y = experts.forward(x[token], only, torch.ones_like(only, dtype=weights.dtype))
        found[expert] = weights[token, place].float() * y.float().norm(dim=-1)
    return found


@torch.no_grad()  # type: ignore[untyped-decorator]
def layer_costs(
    weights: Mapping[str, torch.Tensor], importance: Mapping[str, ImportanceArray], loss: Callable[[], float]
) -> dict[str, float]:
    """Return the loss increase per unit of removed importance of each layer, measured with only that layer
    pruned.

    Parameters
    ----------
    weights : layer -> its weights (M, ...) in the model; they are pruned in place, then restored
    importance : layer -> importance of its weights (M, K)
    loss : function that returns the loss of the model in its current state
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
    """Return the mean squares, multiplied by a factor per layer that is proportional to its squared cost.

    The costs are those of `layer_costs`; the factors have a mean of 1. Importance contains the square root of
    the mean squares and is therefore proportional to the cost itself.
    """
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
    """Set pruned weights to zero, in place, and update kept ones to compensate (`patterns.weight_update`).

    Parameters
    ----------
    model : model with its dense weights
    masks : name of each weight -> bool mask (M, K), True where it is kept
    moments : the result of `input_moments`

    Raises
    ------
    BadInput : the moments of a layer are missing or have another size
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
    """Return name of a weight -> mean over all tokens of a statistic of the layer's inputs.

    `sums_of` returns the sum of the statistic over the tokens of inputs (tokens, K).
    """
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

    _run_hooked({layer.module: hook_of(layer.name) for layer in layers}, run)
    found = {
        f"{layer.name}.weight": (sums[layer.name] / counts[layer.name]).float().cpu().numpy()
        for layer in layers
        if counts[layer.name]
    }
    if not found:
        raise BadInput(f"wanted passes through linear layers, got none of {len(layers)}")
    return found


def _run_hooked(hooks: Mapping[nn.Module, Callable[..., None]], run: Callable[[], Any]) -> None:
    """Call `run` without gradients, with each hook registered as a forward pre-hook of its module."""
    handles = [module.register_forward_pre_hook(hook) for module, hook in hooks.items()]
    try:
        with torch.no_grad():
            run()
    finally:
        for handle in handles:
            handle.remove()


def _write(found: Found, path: str | Path | None) -> None:
    if path is not None:
        from safetensors.numpy import save_file

        with aside(path) as unfinished:
            save_file(found, unfinished)
