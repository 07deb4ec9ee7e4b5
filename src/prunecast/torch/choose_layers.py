"""Choose the layers of a model that become sparse (linear layers, convolutions, experts), and their tiles."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from prunecast.codesign.recipe import Recipe
from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.patterns import TileMap
from prunecast.patterns.sources.weight_set import select_names
from prunecast.torch.choose_tiles import Choice, choose_tiles
from prunecast.torch.experts import PARTS, ExpertStack, are_of_experts, find_experts
from prunecast.torch.feed_forward import FeedForward, find_feed_forwards
from prunecast.torch.find import Found, find_layers, is_convolution, matrix_of
from prunecast.torch.layer_table import check_gpu
from prunecast.torch.sparse_linear import SparseLinear
from prunecast.workload.engines import Progress


class Conversion(NamedTuple):
    """Arguments of `sparsify` that several steps of the conversion use."""

    gpu: GpuSpec
    max_tokens: int
    sparsity: float | None
    squares: Mapping[str, Any] | None
    target: str | Sequence[str]
    ignore: str | Sequence[str]
    fp8: bool
    """Whether products that `fits_fp8` accepts are computed in fp8."""
    few_tokens: bool
    fuse: bool
    trainable: bool
    progress: Progress | None

    @property
    def prepared_tokens(self) -> set[int]:
        """Numbers of tokens for which launches are prepared."""
        return {self.max_tokens, 1} if self.few_tokens else {self.max_tokens}


class ChosenLayers(NamedTuple):
    """Layers that become sparse, and the reasons why others stay dense."""

    choices: list[Choice]
    """Linear layers and convolutions that become sparse."""
    experts: list[tuple[ExpertStack, list[Choice]]]
    expert_names: frozenset[str]
    """Names of the matrices of all experts, including those that stay dense."""
    forwards: list[FeedForward]
    """Feed-forward layers of the model, sparse or not; empty if they are not to be fused."""
    left: list[str]
    """Reasons why other layers stay dense."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all layers that become sparse."""
        of_experts = (choice for _, parts in self.experts for choice in parts)
        return tuple(choice.layer.name for choice in (*self.choices, *of_experts))

    @property
    def tiles(self) -> dict[str, TileMap]:
        """Name of a sparse linear layer or convolution -> its tiles; 2:4 layers are left out."""
        return {layer.name: tiles for layer, tiles, two_of_four in self.choices if two_of_four is None}

    def without(self, dense: frozenset[str]) -> "ChosenLayers":
        """Return this choice without the layers named in `dense`, which stay dense as they save no time."""
        lines = [f"{name}: dense, the network gains nothing by it" for name in sorted(dense)]
        sparse = [choice for choice in self.choices if choice.layer.name not in dense]
        return self._replace(choices=sparse, left=[*self.left, *lines])


def choose_layers(model: nn.Module, found: list[Found], recipe: Recipe, options: Conversion) -> ChosenLayers:
    """Return the layers of a model that become sparse, with their tiles.

    Parameters
    ----------
    found : linear layers and convolutions of the model that can become sparse
    recipe : pattern and sparsity of the layers
    options : arguments of `sparsify`

    Raises
    ------
    BadInput : in the same cases as `choose_tiles`; the weights are on another GPU than the one planned for;
        or a 2:4 layer is to be trained
    """
    stacks = [] if options.trainable else find_experts(model)
    if not found and not stacks:
        raise BadInput(f"no layer of the model can become sparse: {_why_none(model)}")
    matrices = [layer for stack in stacks for layer in stack.layers]
    names = select_names([layer.name for layer in [*found, *matrices]], options.target, options.ignore)
    for device in {matrix_of(layer.module).device for layer in found}:
        if device.type not in ("cpu", "cuda"):
            raise BadInput(f"weights must lie on a GPU, got {device}: load the model first")
        if device.type == "cuda":
            check_gpu(device, options.gpu)
    forwards = find_feed_forwards(model, found) if options.fuse and not options.trainable else []
    choices, left = choose_tiles(
        [*found, *matrices], set(names), recipe, options.sparsity, forwards, options.squares
    )
    experts, choices, dense_experts = _experts_of(stacks, choices)
    two_of_four = [choice.layer.name for choice in choices if choice.two_of_four is not None]
    if options.trainable and two_of_four:
        raise BadInput(
            f"{two_of_four[0]} is 2:4, which is not trained in place: train with `Pruner`, then sparsify"
        )
    expert_names = frozenset(layer.name for layer in matrices)
    return ChosenLayers(choices, experts, expert_names, forwards, [*left, *dense_experts])


def _why_none(model: nn.Module) -> str:
    """Return the reason why a model has no layers that can become sparse."""
    found, left = find_layers(model, convolutions=True)
    if any(is_convolution(layer.module) for layer in found):
        return "its convolutions need convolutions=True"
    if left:
        return left[0]
    if any(isinstance(module, SparseLinear) for module in model.modules()):
        return "its layers are sparse already"
    return f"it has no linear layers{' besides the one that makes the logits' if found else ''}"


def _experts_of(
    stacks: list[ExpertStack], chosen: list[Choice]
) -> tuple[list[tuple[ExpertStack, list[Choice]]], list[Choice], list[str]]:
    """Split the chosen layers into experts and others.

    Return the experts that become sparse, the choices of all other layers, and the reasons why experts stay
    dense.
    """
    of_name = {choice.layer.name: choice for choice in chosen}
    found, left = [], []
    for stack in stacks:
        names = [layer.name for layer in stack.layers]
        parts = [of_name.pop(name) for name in names if name in of_name]
        experts = len(getattr(stack.module, PARTS[0]))
        if any(each.two_of_four is not None or not are_of_experts(each.tiles, experts) for each in parts):
            left += [f"{each.layer.name}: wanted tiles inside of experts" for each in parts]
        elif len(parts) < len(PARTS):
            left += [f"{each.layer.name}: the other product of its experts is dense" for each in parts]
        else:
            found.append((stack, parts))
    return found, list(of_name.values()), left


def without_head(model: nn.Module, found: list[Found]) -> tuple[list[Found], list[str]]:
    """Return the layers `found` without the one that computes the logits, and a line with the reason.

    Pruning this layer costs the most accuracy. It is pruned only if `target` names it.
    """
    getter = getattr(model, "get_output_embeddings", None)
    head = getter() if callable(getter) else None
    names = [layer.name for layer in found if layer.module is head]
    why = [f"{name}: makes the logits; name it in target to prune it" for name in names]
    return [layer for layer in found if layer.module is not head], why
