"""`input_squares`: what the layers of a model are given, for importance that knows it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.files import aside
from prunecast.torch.find import find_layers


@torch.no_grad()  # type: ignore[untyped-decorator]
def input_squares(
    model: nn.Module, run: Callable[[], Any], path: str | Path | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Mean square of each input feature of each linear layer, over all passes that `run` makes.

    Parameters
    ----------
    model : on any device; it is not changed
    run : calls the model on some text or pictures, a few thousand tokens are enough
    path : of a `.safetensors` file to write, which `prunecast prune --calibrate` reads

    Returns
    -------
    name of each weight -> (K,) float32

    Raises
    ------
    BadInput : the model has no linear layer, or a pass reached none of them
    """
    layers, _ = find_layers(model)
    sums = {layer.name: torch.zeros((), dtype=torch.float64) for layer in layers}
    counts = dict.fromkeys(sums, 0)

    def hook_of(name: str) -> Callable[..., None]:
        def hook(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            x = given[0].detach().reshape(-1, given[0].shape[-1])
            sums[name] = sums[name] + x.double().square().sum(0).cpu()
            counts[name] += x.shape[0]

        return hook

    hooks = [layer.module.register_forward_pre_hook(hook_of(layer.name)) for layer in layers]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    found = {
        f"{layer.name}.weight": (sums[layer.name] / counts[layer.name]).float().numpy()
        for layer in layers
        if counts[layer.name]
    }
    if not found:
        raise BadInput(f"input_squares: wanted passes through linear layers, got none of {len(layers)}")
    if path is not None:
        from safetensors.numpy import save_file

        with aside(path) as unfinished:
            save_file(found, unfinished)
    return found
