"""Find layers of a model that can become sparse, and groups of layers that read the same x and become one
product.

Groups are found by structure, not by class: in one module, attention has `q_proj`, `k_proj`, `v_proj` or
`query`, `key`, `value`, and a gated MLP has `gate_proj` and `up_proj`. Every call checks that all members of
a group receive the same x. If they do not, the whole product is computed for each x.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.workload.graph import joins

_ADAPTER = "lora_A"
GRID_FILTERS = "odd square filters, half of that as padding, one group"
"""Requirements of the tile kernel for convolutions."""
_GROUP = 8
"""M and K must be multiples of this: rows of C, and of B if tokens are features, are then whole groups of 16
bytes.
"""


class Found(NamedTuple):
    """Linear layer or convolution of a model."""

    name: str
    """Name of the module."""
    module: nn.Module


def find_layers(model: nn.Module, *, convolutions: bool = False) -> tuple[list[Found], list[str]]:
    """Return the linear layers in the order of the model, and the reasons why others are left unchanged.

    Hugging Face's `Conv1D` counts as a linear layer. With `convolutions`, `Conv2d` layers are returned, too.

    Raises
    ------
    BadInput : a layer has a LoRA adapter; or the model is itself a layer, or a script
    """
    if isinstance(model, nn.Linear | nn.Conv2d | torch.jit.ScriptModule):
        is_script, what = isinstance(model, torch.jit.ScriptModule), type(model).__name__
        wanted = "the module before it was scripted" if is_script else "nn.Sequential(model)"
        raise BadInput(f"model is a {what}, in which no layer can be replaced: wanted {wanted}")
    found, left = [], []
    tied = _tied(model)
    for name, module in model.named_modules():
        if hasattr(module, _ADAPTER):
            raise BadInput(f"{name} carries a LoRA adapter: merge it first, e.g. model.merge_and_unload()")
        left += [f"{name}.{each}: {why}" for each, why in _other_matrices(module)]
        is_linear = isinstance(module, nn.Linear) or is_transposed(module)
        if not (is_linear or (convolutions and is_convolution(module))):
            continue
        if type(module) is not nn.Linear and isinstance(module, nn.Linear) and not _multiplies(module):
            left.append(f"{name}: {type(module).__name__} computes something else than nn.Linear")
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
    """Return groups of layers that read the same x.

    The layers of a group have the same K. A layer without siblings is a group of one.
    """
    by_name = {layer.name: layer for layer in found}
    columns = {layer.name: matrix_of(layer.module).shape[1] for layer in found}
    return [[by_name[name] for name in group] for group in joins.sibling_groups(columns)]


def matrix_of(module: nn.Module) -> torch.Tensor:
    """Return a view of the weights: A (M, K) of a linear layer, or filters (M, channels * height * width)."""
    weight: torch.Tensor = module.weight.detach()
    if is_convolution(module):
        return weight.flatten(1)
    return weight.t() if is_transposed(module) else weight


def biases_of(modules: Sequence[nn.Module]) -> list[torch.Tensor] | None:
    """Return the bias of each module, zeros for a module without one; None if no module has one."""
    if all(module.bias is None for module in modules):
        return None
    return [
        module.weight.new_zeros(len(matrix_of(module))) if module.bias is None else module.bias.detach()
        for module in modules
    ]


def is_transposed(module: nn.Module) -> bool:
    """Return whether the layer stores its weights as (K, M), as Hugging Face's `Conv1D` does."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def is_convolution(module: nn.Module) -> bool:
    """Return whether the layer is a `Conv2d` and not a subclass."""
    return type(module) is nn.Conv2d


def runs_on_grid(conv: nn.Conv2d) -> bool:
    """Return whether a convolution meets `GRID_FILTERS`."""
    size, stride = conv.kernel_size[0], conv.stride[0]
    sizes = (conv.kernel_size, conv.stride, conv.padding, conv.dilation)
    same = sizes == ((size, size), (stride, stride), (size // 2, size // 2), (1, 1))
    return same and size % 2 == 1 and conv.groups == 1 and conv.padding_mode == "zeros"


def random_like(shape: Sequence[int], like: torch.Tensor, seed: int = 0) -> torch.Tensor:
    """Return normal random numbers in dtype and device of `like`, without changing torch's random state."""
    own = torch.Generator().manual_seed(seed)
    return torch.randn(tuple(shape), generator=own).to(like)


def compute_alike(first: Callable[..., Any], second: Callable[..., Any], *operands: torch.Tensor) -> bool:
    """Return whether two functions return nearly the same tensor; False if one raises an error."""
    try:
        with torch.no_grad():
            y, wanted = first(*operands), second(*operands)
    except Exception:  # other arguments are needed
        return False
    same = isinstance(y, torch.Tensor) and y.shape == wanted.shape
    return bool(same and torch.allclose(y, wanted, rtol=1e-2, atol=1e-3))


def _multiplies(module: nn.Linear) -> bool:
    """Return whether a subclass of `nn.Linear` computes the linear product, tested on random x.

    The output layer of `MultiheadAttention` does not count, since attention reads its weights instead of
    calling it.
    """
    if isinstance(module, nn.modules.linear.NonDynamicallyQuantizableLinear):
        return False

    # Quantised subclasses may have no weight, or one that cannot be read: then both functions raise
    def linear(x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x.to(module.weight), module.weight, module.bias)

    x = random_like((2, module.in_features), torch.empty(0))
    return compute_alike(lambda x: module(x.to(module.weight)), linear, x)


def _other_matrices(module: nn.Module) -> list[tuple[str, str]]:
    """Return (name, reason) for those matrices of the module that no linear layer multiplies."""
    if isinstance(module, nn.MultiheadAttention):
        return [("in_proj_weight", "MultiheadAttention reads its weights itself")]
    if isinstance(module, nn.modules.conv._ConvNd | nn.utils.parametrize.ParametrizationList):
        return []
    stacks = [
        name
        for name, each in module._parameters.items()
        if each is not None and each.dim() == 3 and len(each) > 1 and min(each.shape[1:]) >= _GROUP
    ]
    return [(name, "matrices of experts in one parameter are not converted") for name in stacks]


def _tied(model: nn.Module) -> set[int]:
    """Return the `id` of each weight that several modules share."""
    seen: dict[int, int] = {}
    for module in model.modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                seen[id(parameter)] = seen.get(id(parameter), 0) + 1
    return {key for key, count in seen.items() if count > 1}
