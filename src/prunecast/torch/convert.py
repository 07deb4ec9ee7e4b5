"""`sparsify`: the linear layers of a model, with zeros or to be pruned, become sparse products in place.

Everything is decided, checked and packed before the first layer is replaced, so that a model is converted
whole or not at all. Packing happens on the device that a layer lies on.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.sources.selection import select_names
from prunecast.torch.find import Found, find_layers, is_transposed, matrix_of, sibling_groups
from prunecast.torch.forms import layouts_for
from prunecast.torch.gpus import check_gpu
from prunecast.torch.kept import tiles_of
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.packed import PackedProduct, SparseLinear, stacked_tiles
from prunecast.torch.recipe import Recipe, read_recipe

__all__ = ["LEAST_SPARSITY", "Sparsified", "sparsify"]

LEAST_SPARSITY = 0.3
"""Layers that keep more stay dense: no kernel gains there."""
OFF_RECIPE = 0.01
"""Share of a layer's weights that may be kept beyond its recipe, where sizes do not divide."""

Progress = Callable[[str, int, int], None]


class Sparsified(NamedTuple):
    """What was done to a model."""

    layers: tuple[str, ...]
    """Layers that are sparse now."""
    launches: int
    left: tuple[str, ...]
    """Why others are as they were, a line each."""
    bytes_before: int
    bytes_after: int
    """Bytes of all weights of the model on the device."""
    seconds: float

    def __str__(self) -> str:
        mib = 1 << 20
        return (
            f"{len(self.layers)} layers in {self.launches} launches, {len(self.left)} left dense; weights "
            f"{self.bytes_before / mib:.1f} MiB, now {self.bytes_after / mib:.1f} MiB; {self.seconds:.1f} s"
        )


class _Choice(NamedTuple):
    """A layer and what it will keep."""

    layer: Found
    tiles: TileMap


def sparsify(
    model: nn.Module,
    recipe: "str | Path | Mapping[str, Any] | Recipe",
    *,
    gpu: str | GpuSpec,
    max_tokens: int,
    sparsity: float | None = None,
    target: Sequence[str] = (),
    ignore: Sequence[str] = (),
    few_tokens: bool = True,
    fuse: bool = True,
    trainable: bool = False,
    progress: Progress | None = None,
    quiet: bool = False,
) -> Sparsified:
    """Replace the linear layers of `model` that are pruned, in place.

    Parameters
    ----------
    model : fp16 or bf16, on its GPU (on a CPU it runs too, slowly, for tests); Hugging Face's or any other
    recipe : a pattern string such as `tile-wise:128`; or a recipe as `prunecast prune` writes it, as a file,
    its
        folder or a mapping, whose layers and sparsities the zeros must follow
    gpu : name or spec of the GPU to plan for
    max_tokens : most tokens of one call: batch times sequence
    sparsity : prune every layer to this by magnitude first; None takes the zeros that are there
    target, ignore : names of modules, or `re:` and a regular expression
    few_tokens : keep a second image of the weights for calls of up to 64 tokens; without it decoding is
    slower, and
        the weights take half of the memory
    fuse : one launch for layers that read the same x
    trainable : kept values become parameters with gradients; with one image only
    progress : told `(stage, done, total)`
    quiet : do not print what was done

    Raises
    ------
    BadInput : an unknown pattern or GPU, weights of another dtype, zeros that do not follow the recipe, a
    LoRA
        adapter, no layer to convert; the model is as it was
    """
    start = time.monotonic()
    spec, plan = load_gpu(gpu) if isinstance(gpu, str) else gpu, read_recipe(recipe)
    _check(max_tokens, sparsity)
    found, left = find_layers(model)
    names = select_names([layer.name for layer in found], target, ignore)
    _check_devices(found, spec)
    chosen, more_left = _choose(found, set(names), plan, sparsity)
    before = _bytes_of(model)
    few = few_tokens and not trainable
    products = _pack(chosen, spec, max_tokens, few_tokens=few, fuse=fuse, progress=progress)
    for group, product in products:
        _replace(model, group, product, trainable=trainable)
    layers = tuple(choice.layer.name for choice in chosen)
    done = Sparsified(
        layers,
        len(products),
        (*left, *more_left),
        before,
        _bytes_of(model),
        time.monotonic() - start,
    )
    if not quiet:
        print(f"prunecast: {done}", file=sys.stderr)
    return done


def _choose(
    found: list[Found], wanted: set[str], recipe: Recipe, sparsity: float | None
) -> tuple[list[_Choice], list[str]]:
    chosen, left = [], []
    unknown = [name for name in recipe.sparsities if name not in {layer.name for layer in found}]
    if unknown:
        raise BadInput(f"the recipe prunes {unknown[0]!r}, which the model has no linear layer of")
    for layer in found:
        if layer.name not in wanted:
            left.append(f"{layer.name}: not asked for")
            continue
        if recipe.sparsities and layer.name not in recipe.sparsities:
            left.append(f"{layer.name}: not in the recipe")
            continue
        tiles = _tiles(layer, recipe, sparsity)
        if 1.0 - tiles.density < LEAST_SPARSITY:
            left.append(f"{layer.name}: {1.0 - tiles.density:.0%} sparse, dense is faster")
            continue
        chosen.append(_Choice(layer, tiles))
    if not chosen:
        why = left[0] if left else "the model has no linear layers"
        raise BadInput(f"no layer has enough zeros of {recipe.pattern} to become sparse ({why})")
    return chosen, left


def _tiles(layer: Found, recipe: Recipe, sparsity: float | None) -> TileMap:
    """What the layer keeps."""
    weights = matrix_of(layer.module)
    dtype_name(weights.dtype)
    array = weights.float().cpu().numpy()
    pattern = parse_pattern(recipe.pattern_of(layer.name))
    if sparsity is not None:
        mask = pattern.prune({layer.name: np.abs(array)}, sparsity)[layer.name]
        kept = pattern.map(mask)
        if not isinstance(kept, TileMap):
            raise BadInput(f"prunecast.torch runs patterns of tiles, {pattern.canonical} has none")
        return kept
    try:
        tiles = tiles_of(array, None, recipe.pattern_of(layer.name))
    except BadInput as error:
        raise BadInput(f"{layer.name}: {error}") from None
    said = recipe.sparsities.get(layer.name)
    if said is not None and 1.0 - tiles.density < said - OFF_RECIPE:
        raise BadInput(
            f"{layer.name}: the recipe says {said:.1%} zeros of {pattern.canonical}, the weights have "
            f"{1.0 - tiles.density:.1%}"
        )
    return tiles


def _pack(
    chosen: list[_Choice],
    gpu: GpuSpec,
    max_tokens: int,
    *,
    few_tokens: bool,
    fuse: bool,
    progress: Progress | None,
) -> list[tuple[list[_Choice], PackedProduct]]:
    """Products in the order of the model; planned and packed in threads, which NumPy and torch let run
    together.
    """
    by_name = {choice.layer.name: choice for choice in chosen}
    layers = [choice.layer for choice in chosen]
    groups = sibling_groups(layers) if fuse else [[layer] for layer in layers]
    choices = [[by_name[layer.name] for layer in group] for group in groups]

    def packed(group: list[_Choice]) -> PackedProduct:
        return _product(group, gpu, max_tokens, few_tokens=few_tokens)

    products: list[PackedProduct] = []
    with ThreadPoolExecutor() as pool:
        for product in pool.map(packed, choices):
            products.append(product)
            if progress is not None:
                progress("packing", len(products), len(choices))
    return list(zip(choices, products, strict=True))


def _product(group: list[_Choice], gpu: GpuSpec, max_tokens: int, *, few_tokens: bool) -> PackedProduct:
    modules = [choice.layer.module for choice in group]
    weight = torch.cat([matrix_of(module) for module in modules])
    tiles = stacked_tiles([choice.tiles for choice in group])
    layouts = layouts_for(tiles, dtype_name(weight.dtype), gpu, max_tokens, few_tokens=few_tokens)
    with torch.no_grad():
        bias = _bias(modules)
        return PackedProduct(weight, tiles, bias, gpu=gpu, max_tokens=max_tokens, layouts=layouts)


def _bias(modules: list[nn.Module]) -> torch.Tensor | None:
    """Bias of all parts, zeros for those without one; None where none has one."""
    if all(module.bias is None for module in modules):
        return None
    parts = []
    for module in modules:
        rows = matrix_of(module).shape[0]
        own = module.bias
        parts.append(module.weight.new_zeros(rows) if own is None else own.detach())
    return torch.cat(parts)


def _replace(model: nn.Module, group: list[_Choice], product: PackedProduct, *, trainable: bool) -> None:
    first = 0
    for choice in group:
        name, module = choice.layer
        rows = matrix_of(module).shape[0]
        sparse = SparseLinear(
            product, first, rows, has_bias=module.bias is not None, transposed=is_transposed(module)
        )
        sparse.train(module.training)
        if trainable:
            sparse.trainable()
        parent, _, own = name.rpartition(".")
        setattr(model.get_submodule(parent), own, sparse)
        first += rows


def _check(max_tokens: int, sparsity: float | None) -> None:
    if max_tokens < 1:
        raise BadInput(f"max_tokens must be at least 1, got {max_tokens}")
    if sparsity is not None and not 0.0 <= sparsity < 1.0:
        raise BadInput(f"sparsity must be in [0, 1), got {sparsity}")


def _check_devices(found: list[Found], gpu: GpuSpec) -> None:
    for device in {matrix_of(layer.module).device for layer in found}:
        if device.type not in ("cpu", "cuda"):
            raise BadInput(f"weights must lie on a GPU, got {device}: load the model first")
        if device.type == "cuda":
            check_gpu(device, gpu)


def _bytes_of(model: nn.Module) -> int:
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers())}
    return sum(t.numel() * t.element_size() for t in tensors.values())
