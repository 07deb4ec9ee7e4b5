"""Which layers of a model can become sparse, and which of them read the same x and so become one product.

Found by structure, not by class: attention has `q_proj`, `k_proj`, `v_proj` or `query`, `key`, `value`, a
gated MLP `gate_proj` and `up_proj`, side by side in one module. That their forward hands the same x to all of
them is checked at every call: where it does not, each computes its own.
"""

from typing import NamedTuple

import torch
from torch import nn

from prunecast.errors import BadInput

SIBLINGS = (
    ("q_proj", "k_proj", "v_proj"),
    ("query", "key", "value"),
    ("gate_proj", "up_proj"),
)
"""Names in the order in which models call them."""
_ADAPTER = "lora_A"
_GROUP = 8
"""Rows of C, and of B where tokens are features, are whole groups of 16 bytes."""


class Found(NamedTuple):
    """A linear layer of a model."""

    name: str
    """Name of the module."""
    module: nn.Module


def find_layers(model: nn.Module) -> tuple[list[Found], list[str]]:
    """Linear layers in the order of the model, Hugging Face's `Conv1D` too; and why others are left as they
    are.

    Raises
    ------
    BadInput : a layer carries a LoRA adapter
    """
    found, left = [], []
    tied = _tied(model)
    for name, module in model.named_modules():
        if hasattr(module, _ADAPTER):
            raise BadInput(f"{name} carries a LoRA adapter: merge it first, e.g. model.merge_and_unload()")
        if not _is_linear(module):
            continue
        m, k = matrix_of(module).shape
        if id(module.weight) in tied:
            left.append(f"{name}: its weights are another module's too")
        elif m % _GROUP or k % _GROUP:
            left.append(f"{name}: {m} x {k} is no multiple of {_GROUP}")
        else:
            found.append(Found(name, module))
    return found, left


def sibling_groups(found: list[Found]) -> list[list[Found]]:
    """The layers again, those together that read the same x; all of them have the same K then."""
    by_name = {layer.name: layer for layer in found}
    groups, taken = [], set()
    for layer in found:
        if layer.name in taken:
            continue
        group = _siblings(layer, by_name)
        taken |= {each.name for each in group}
        groups.append(group)
    return groups


def matrix_of(module: nn.Module) -> torch.Tensor:
    """A (M, K) of a linear layer, a view."""
    weight: torch.Tensor = module.weight.detach()
    return weight.t() if is_transposed(module) else weight


def is_transposed(module: nn.Module) -> bool:
    """Whether the layer keeps its weights as (K, M), as Hugging Face's `Conv1D` does."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def _is_linear(module: nn.Module) -> bool:
    return type(module) is nn.Linear or is_transposed(module)


def _siblings(layer: Found, by_name: dict[str, Found]) -> list[Found]:
    parent, _, own = layer.name.rpartition(".")
    for names in SIBLINGS:
        if own != names[0]:
            continue
        group = [by_name.get(f"{parent}.{name}" if parent else name) for name in names]
        present = [each for each in group if each is not None]
        if len(present) == len(names) and len({matrix_of(each.module).shape[1] for each in present}) == 1:
            return present
    return [layer]


def _tied(model: nn.Module) -> set[int]:
    """Weights that more than one module has, by identity."""
    seen: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                seen[id(parameter)] = seen.get(id(parameter), 0) + 1
    return {key for key, count in seen.items() if count > 1}
