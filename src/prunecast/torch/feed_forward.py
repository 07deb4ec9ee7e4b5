"""Find feed-forward layers of a model whose activation can be computed in the epilogue of a product.

    gated  down(act(gate(x)) * up(x)), in one module with the names of `GATED` and an activation
    chain  last(act(first(x))): in one module, with or without other layers, in an `nn.Sequential`, or in the
           two neighbouring modules `intermediate` and `output` of BERT

Candidates are found by the names of activations and the shapes of weights, and then tested on random x. A
module that computes anything else is left unchanged.
"""

import inspect
from collections.abc import Callable
from itertools import permutations
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from prunecast.torch.epilogue import activation_of
from prunecast.torch.find import Found, compute_alike, matrix_of, random_like

GATED = (("gate_proj", "up_proj", "down_proj"), ("wi_0", "wi_1", "wo"))
ACTIVATION_NAMES = ("act_fn", "activation_fn", "act", "activation", "intermediate_act_fn", "gelu_impl")
_TRIED_TOKENS = 2
_TRIED_PIXELS = 4
"""Numbers of tokens, and of pixels along both axes, with which a module is run to see what it computes."""


class FeedForward(NamedTuple):
    """Feed-forward layer of a model, described by the names of its modules."""

    module: str
    """Name of the module that contains the activation."""
    first: tuple[str, ...]
    """Names of gate and up, or of the first layer of a chain."""
    last: str
    act: str
    """Name of the attribute of `module` that is the activation."""
    activation: str
    """Name of the activation in kernels."""

    @property
    def is_gated(self) -> bool:
        """True for a gated layer, which has a gate and an up matrix."""
        return len(self.first) > 1


class GatedMlp(nn.Module):  # type: ignore[misc]
    """Gated feed-forward layer in two launches: one for gate and up, one for down.

    Gate and up are one product, whose epilogue computes the gated unit. No kernel runs between the launches,
    except for a cast if the dtypes differ.
    """

    def __init__(self, replaced: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        for name in names:
            self.add_module(name, getattr(replaced, name))
        self.first, self.last = names[0], names[-1]
        gate, down = (getattr(self, name).product.like.dtype for name in (self.first, self.last))
        self.casts = gate != down
        """Whether x of the last layer is cast, as in a T5 whose last layer is fp32."""
        self.train(replaced.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return y (..., features) of x (..., features)."""
        gated, last = getattr(self, self.first).product(x), getattr(self, self.last)
        y: torch.Tensor = last(gated.to(last.product.like.dtype) if self.casts else gated)
        return y


def find_feed_forwards(model: nn.Module, found: list[Found]) -> list[FeedForward]:
    """Return the feed-forward layers of the model whose linear layers are all in `found`."""
    layers = {layer.name: layer.module for layer in found}
    tried = []
    for name, module in model.named_modules():
        for candidate in _candidates(name, module, layers):
            test = _computes_gated if candidate.is_gated else _is_chain
            if test(module, candidate, layers):
                tried.append(candidate)
                break
    return tried


def _candidates(name: str, module: nn.Module, layers: dict[str, nn.Module]) -> list[FeedForward]:
    """Return the feed-forward layers that a module may contain, judged by the names and weight shapes of its
    children.
    """
    before = f"{name}." if name else ""
    if type(module) is nn.Sequential:
        return _in_sequence(name, module, layers)
    act = next((each for each in ACTIVATION_NAMES if callable(getattr(module, each, None))), None)
    activation = None if act is None else activation_of(getattr(module, act))
    if act is None or activation in (None, "none"):
        return []
    own = [before + child for child, _ in module.named_children() if before + child in layers]
    # The root module cannot be replaced
    gated = [tuple(before + each for each in names) for names in GATED] if name else []
    found = [(names[:-1], names[-1]) for names in gated if set(names) <= set(own)]
    shapes = {each: matrix_of(layers[each]).shape for each in own}
    found += [((a,), b) for a, b in permutations(own, 2) if shapes[a][0] == shapes[b][1]]
    if name.rpartition(".")[2] == "intermediate":
        beside = name.rpartition(".")[0]
        last = f"{beside}.output.dense" if beside else "output.dense"
        found += [((each,), last) for each in own if last in layers]
    return [FeedForward(name, first, last, act, activation) for first, last in found]


def _in_sequence(name: str, module: nn.Sequential, layers: dict[str, nn.Module]) -> list[FeedForward]:
    """Return the feed-forward layers of an `nn.Sequential`: layer, activation, layer in direct sequence."""
    before = f"{name}." if name else ""
    children = [(child, each) for child, each in module.named_children() if type(each) is not nn.Dropout]
    return [
        FeedForward(name, (before + first,), before + last, act, activation)
        for (first, _), (act, between), (last, _) in zip(children, children[1:], children[2:], strict=False)
        if {before + first, before + last} <= layers.keys()
        and (activation := activation_of(between)) not in (None, "none")
    ]


def _computes_gated(module: nn.Module, candidate: FeedForward, layers: dict[str, nn.Module]) -> bool:
    """Return whether the module computes down(act(gate(x)) * up(x)), tested on random x."""
    gate, up, down = (layers[each] for each in (*candidate.first, candidate.last))
    x = random_like((1, _TRIED_TOKENS, matrix_of(gate).shape[1]), gate.weight)
    act = getattr(module, candidate.act)

    def as_named(x: torch.Tensor) -> torch.Tensor:
        gated: torch.Tensor = act(gate(x)) * up(x)
        wanted: torch.Tensor = down(gated.to(down.weight.dtype))
        return wanted

    return compute_alike(module, as_named, x)


class _RecordingActivation(nn.Module):  # type: ignore[misc]
    """Substitute for an activation: returns the same random numbers at every call, and records its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.read.append(x)
        return random_like(x.shape, x)


def _is_chain(module: nn.Module, candidate: FeedForward, layers: dict[str, nn.Module]) -> bool:
    """Return whether only the activation reads the output of the first layer, and the last layer its result.

    The activation must be called once.

    The module is run twice with random numbers in place of the outputs of the first layer and of the
    activation. The numbers for the first layer differ between the runs, and the output of the module must
    not.
    """
    first, last = layers[candidate.first[0]], layers[candidate.last]
    call = _call_of(module, first)
    if call is None:
        return False
    ends_here = candidate.last.rpartition(".")[0] == candidate.module
    act, results = getattr(module, candidate.act), []
    for seed in (1, 2):
        given = _RecordingActivation()
        hidden: list[torch.Tensor] = []
        read: list[torch.Tensor] = []

        def replaced(_: Any, __: Any, y: torch.Tensor, seed: int = seed, to: Any = hidden) -> torch.Tensor:
            to.append(random_like(y.shape, y, seed))
            return to[-1]

        hooks = [
            first.register_forward_hook(replaced),
            last.register_forward_pre_hook(lambda _, x, to=read: to.append(x[0])),
        ]
        setattr(module, candidate.act, given)
        try:
            y = _tried(lambda _: call(), None)
        finally:
            if not isinstance(act, nn.Module):  # torch refuses to assign a function over a module
                delattr(module, candidate.act)
            setattr(module, candidate.act, act)
            for hook in hooks:
                hook.remove()
        if y is None or len(hidden) != 1 or len(given.read) != 1 or not torch.equal(*hidden, *given.read):
            return False
        wanted = random_like(given.read[0].shape, given.read[0])
        if ends_here and (len(read) != 1 or not torch.equal(read[0].to(wanted.dtype), wanted)):
            return False
        results.append([each for each in tree_leaves(y) if isinstance(each, torch.Tensor)])
    return bool(results[0]) and all(torch.equal(*pair) for pair in zip(*results, strict=True))


def _call_of(module: nn.Module, first: nn.Module) -> Callable[[], Any] | None:
    """Return a function that runs the module on random tokens or pixels; None if all trials raise an error.

    If the module requires more arguments than x, they are all None, or all x.
    """
    features = matrix_of(first).shape[1]
    pixels = (1, features, _TRIED_PIXELS, _TRIED_PIXELS)
    try:
        parameters = list(inspect.signature(module.forward).parameters.values())[1:]
    except ValueError:
        return None
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    needed = sum(each.default is each.empty and each.kind in plain for each in parameters)
    for shape in ((1, _TRIED_TOKENS, features), (_TRIED_TOKENS, features), pixels):
        x = random_like(shape, first.weight)
        for others in [[None] * needed, [x] * needed][: 1 + bool(needed)]:

            def call(x: torch.Tensor = x, others: Any = others) -> Any:
                with torch.no_grad():
                    return module(x, *others)

            if _tried(lambda _: call(), x) is not None:
                return call
    return None


def _tried(function: Callable[[Any], Any], x: Any) -> Any:
    try:
        return function(x)
    except Exception:  # needs other arguments than x
        return None
