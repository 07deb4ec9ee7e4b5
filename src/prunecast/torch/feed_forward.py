"""Feed-forward layers of a model whose activation can be the epilogue of a product.

    gated  down(act(gate(x)) * up(x)), in one module with `gate_proj`, `up_proj`, `down_proj` and `act_fn`
    chain  last(act(first(x))): in one module (`fc1`, `fc2`; `c_fc`, `c_proj`), or in the two neighbouring
           modules `intermediate` and `output` of BERT

They are found by names and then tested: a module that computes anything else on random x is left unchanged.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn

from prunecast.torch.epilogue import activation_of
from prunecast.torch.find import Found, matrix_of

GATED = ("gate_proj", "up_proj", "down_proj")
CHAINS = (("fc1", "fc2"), ("c_fc", "c_proj"), ("lin1", "lin2"), ("dense_h_to_4h", "dense_4h_to_h"))
ACTIVATION_NAMES = ("act_fn", "activation_fn", "act", "activation", "intermediate_act_fn")
_TRIED_TOKENS = 2


class FeedForward(NamedTuple):
    """A feed-forward layer, by names of modules."""

    module: str
    """The module that holds the activation."""
    first: tuple[str, ...]
    """Gate and up, or the first layer of a chain."""
    last: str
    act: str
    """Attribute of `module` that holds the activation."""
    activation: str
    """Name of the activation in kernels."""

    @property
    def is_gated(self) -> bool:
        """Whether there are a gate and up."""
        return len(self.first) > 1


class GatedMlp(nn.Module):  # type: ignore[misc]
    """Feed-forward with gate, up and down in two launches, with no kernel between them.

    `gate_proj` and `up_proj` are parts of one product whose epilogue is the gated unit.
    """

    def __init__(self, replaced: nn.Module) -> None:
        super().__init__()
        for name in GATED:
            self.add_module(name, getattr(replaced, name))
        self.train(replaced.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., features) of x (..., features)."""
        y: torch.Tensor = self.down_proj(self.gate_proj.product(x))
        return y


def find_feed_forwards(model: nn.Module, found: list[Found]) -> list[FeedForward]:
    """Return the feed-forward layers of the model whose layers are all in `found`."""
    layers = {layer.name: layer.module for layer in found}
    tried = []
    for name, module in model.named_modules():
        for candidate in _candidates(name, module):
            layers_of = [layers.get(each) for each in (*candidate.first, candidate.last)]
            if None not in layers_of and _computes(module, candidate, layers_of):
                tried.append(candidate)
                break
    return tried


def _candidates(name: str, module: nn.Module) -> list[FeedForward]:
    """Return the feed-forward layers that the names of the children of a module allow."""
    before = f"{name}." if name else ""
    act = next((each for each in ACTIVATION_NAMES if callable(getattr(module, each, None))), None)
    activation = None if act is None else activation_of(getattr(module, act))
    if act is None or activation in (None, "none"):
        return []
    children = dict(module.named_children())
    found: list[tuple[tuple[str, ...], str]] = []
    if name and all(each in children for each in GATED):  # the root module cannot be replaced
        found.append((GATED[:2], GATED[2]))
    found += [((first,), last) for first, last in CHAINS if first in children and last in children]
    made = [
        FeedForward(name, tuple(before + each for each in first), before + last, act, activation)
        for first, last in found
    ]
    if "dense" in children and name.rpartition(".")[2] == "intermediate":
        beside = name.rpartition(".")[0]
        last = f"{beside}.output.dense" if beside else "output.dense"
        made.append(FeedForward(name, (before + "dense",), last, act, activation))
    return made


def _computes(module: nn.Module, candidate: FeedForward, layers: list[Any]) -> bool:
    """Return whether the module computes, on random x, what its names imply."""
    *first, last = layers
    weight = matrix_of(first[0])
    own = torch.Generator().manual_seed(0)  # do not change the user's random state
    x = torch.randn(1, _TRIED_TOKENS, weight.shape[1], generator=own).to(weight)
    act = getattr(module, candidate.act)
    ends_here = candidate.last.rpartition(".")[0] == candidate.module

    def as_named(x: torch.Tensor) -> torch.Tensor:
        hidden = act(first[0](x))
        if candidate.is_gated:
            hidden = hidden * first[1](x)
        wanted: torch.Tensor = last(hidden) if ends_here else hidden
        return wanted

    with torch.no_grad():
        wanted, y = _tried(as_named, x), _tried(module, x)
    if wanted is None or y is None or y.shape != wanted.shape:
        return False
    return bool(torch.allclose(y, wanted, rtol=1e-2, atol=1e-3))


def _tried(module: Callable[[torch.Tensor], Any], x: torch.Tensor) -> torch.Tensor | None:
    try:
        y = module(x)
    except Exception:  # needs other arguments than x
        return None
    return y if isinstance(y, torch.Tensor) else None
