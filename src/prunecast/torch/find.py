"""Layers of a model that can become sparse, and groups of them that read the same x and become one product.

Found by structure, not by class: attention has `q_proj`, `k_proj`, `v_proj` or `query`, `key`, `value`, a
gated MLP `gate_proj` and `up_proj`, side by side in one module. That their forward hands the same x to all of
them is checked at every call: where it does not, each computes its own.
"""

from typing import NamedTuple

import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.workload.graph import joins

_ADAPTER = "lora_A"
GRID_FILTERS = "odd square filters, half of that as padding, one group"
"""What the tile kernel runs of convolutions."""
_GROUP = 8
"""Rows of C, and of B where tokens are features, are whole groups of 16 bytes."""


class Found(NamedTuple):
    """A linear layer of a model."""

    name: str
    """Name of the module."""
    module: nn.Module


def find_layers(model: nn.Module, *, convolutions: bool = False) -> tuple[list[Found], list[str]]:
    """Linear layers in the order of the model, Hugging Face's `Conv1D` too, and `Conv2d` where asked for; and
    why others are left as they are.

    Raises
    ------
    BadInput : a layer carries a LoRA adapter
    """
    found, left = [], []
    tied = _tied(model)
    for name, module in model.named_modules():
        if hasattr(module, _ADAPTER):
            raise BadInput(f"{name} carries a LoRA adapter: merge it first, e.g. model.merge_and_unload()")
        is_linear = type(module) is nn.Linear or is_transposed(module)
        if not (is_linear or (convolutions and is_convolution(module))):
            continue
        m, k = matrix_of(module).shape
        if id(module.weight) in tied:
            left.append(f"{name}: its weights are another module's too")
        elif m % _GROUP or k % _GROUP:
            left.append(f"{name}: {m} x {k} is no multiple of {_GROUP}")
        elif is_convolution(module) and not runs_on_grid(module):
            left.append(f"{name}: wanted {GRID_FILTERS}, got {module}")
        else:
            found.append(Found(name, module))
    return found, left


def sibling_groups(found: list[Found]) -> list[list[Found]]:
    """The layers again, those together that read the same x; all of them have the same K then."""
    by_name = {layer.name: layer for layer in found}
    columns = {layer.name: matrix_of(layer.module).shape[1] for layer in found}
    return [[by_name[name] for name in group] for group in joins.sibling_groups(columns)]


def matrix_of(module: nn.Module) -> torch.Tensor:
    """A (M, K) of a linear layer, or filters (M, channels * height * width), a view."""
    weight: torch.Tensor = module.weight.detach()
    if is_convolution(module):
        return weight.flatten(1)
    return weight.t() if is_transposed(module) else weight


def is_transposed(module: nn.Module) -> bool:
    """Whether the layer keeps its weights as (K, M), as Hugging Face's `Conv1D` does."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def is_convolution(module: nn.Module) -> bool:
    """Whether the layer is a `Conv2d`, and no kind of it."""
    return type(module) is nn.Conv2d


def runs_on_grid(conv: nn.Conv2d) -> bool:
    """Whether a convolution has `GRID_FILTERS`."""
    size, stride = conv.kernel_size[0], conv.stride[0]
    sizes = (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    same = sizes == ((size, size), (stride, stride), (size // 2, size // 2), (1, 1))
    return same and size % 2 == 1 and conv.groups == 1 and conv.padding_mode == "zeros"


def _tied(model: nn.Module) -> set[int]:
    """Weights that more than one module has, by identity."""
    seen: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                seen[id(parameter)] = seen.get(id(parameter), 0) + 1
    return {key for key, count in seen.items() if count > 1}
