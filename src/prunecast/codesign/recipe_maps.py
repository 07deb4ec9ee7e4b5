"""Sparsity maps of weights that are already pruned, read from their recipe and their zeros."""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from prunecast.choice import PrunedMap
from prunecast.codesign.recipe import PrunedLayer, Recipe, read_recipe
from prunecast.codesign.tile_maps import TILES
from prunecast.errors import BadInput
from prunecast.patterns import parse_pattern
from prunecast.patterns.plain import ZeroTilesPattern
from prunecast.patterns.sources import Layer
from prunecast.patterns.sources.readers import RECIPE, open_tensors
from prunecast.patterns.tile_map import MaskArray
from prunecast.workload.candidates import Candidate, candidates, run_in_torch
from prunecast.workload.layers import Removed, Source, path_of
from prunecast.workload.pruned_maps import GivenMap
from prunecast.workload.workload import WorkloadLayer


class RecipeLayers(NamedTuple):
    """Sparsity maps and kernels of the rows of a prediction table, if a recipe has pruned their weights.

    `maps` (row -> sparsity map) contains only rows whose matrices were all pruned; other rows stay dense.
    """

    maps: dict[str, GivenMap]
    candidates: dict[str, tuple[Candidate, ...]]
    """Row -> kernels to compare, dense first. A row that the recipe left dense has only the dense kernel."""


def recipe_of(weights: Source) -> Recipe | None:
    """Return the recipe in the folder of the weights; None for another source or a folder without one.

    Raises
    ------
    BadInput : the recipe cannot be read, or names a layer that is not in the folder
    """
    path = None if isinstance(weights, Removed) else path_of(weights)
    if path is None or not (path / RECIPE).is_file():
        return None
    recipe = read_recipe(path)
    stored = {name.removesuffix(".weight") for name in open_tensors(path)}
    for module in pruned_modules(recipe):
        # If one tensor contains the matrices of several experts, their names begin with its name
        if module not in stored and not any(module.startswith(name) for name in stored):
            raise BadInput(
                f"{path / RECIPE} is of another model: it prunes {module!r}, which is no layer here"
            )
    return recipe


def pruned_modules(recipe: Recipe) -> dict[str, PrunedLayer]:
    """Return module -> its entry in the recipe, without modules that stayed dense."""
    return {
        layer.module: layer
        for layer in recipe.layers
        if layer.sparsity and recipe.pattern_of(layer.module) != "dense"
    }


def left_dense(recipe: Recipe, weights: Source) -> list[str]:
    """Return the names of the tensors in a folder that its recipe did not prune."""
    pruned, path = pruned_modules(recipe), path_of(weights)
    assert path is not None
    return [name for name in open_tensors(path) if name.removesuffix(".weight") not in pruned]


def recipe_layers(
    recipe: Recipe,
    rows: Mapping[str, WorkloadLayer],
    kernels: Sequence[str] | str,
    tokens: int,
    *,
    is_torch: bool = False,
) -> RecipeLayers:
    """Return the sparsity map of each layer in a prediction table, and the kernels that can run the map.

    The recipe defines the pattern of each map.

    Parameters
    ----------
    rows : name of a row of the prediction table -> its layer, whose weights were pruned with the recipe
    kernels, tokens : requested kernels and number of tokens, see `candidates`
    is_torch : use only kernels that torch runs, see `run_in_torch`

    Raises
    ------
    BadInput : no row is a layer of the recipe: it belongs to another model
    """
    pruned, found = pruned_modules(recipe), RecipeLayers({}, {})
    for row, layer in rows.items():
        members = layer.members or (layer,)
        names = [each.name for each in layer.members] or list(layer.stands_for)
        modules = [name.removesuffix(".weight") for name in names]
        own = [recipe.pattern_of(module) for module in modules if module in pruned]
        if len(own) < len(modules):
            found.candidates[row] = candidates("dense", None)
            continue
        made = cache(partial(_map, recipe, dict(zip(modules, members, strict=True)), own[0]))
        found.maps[row] = GivenMap(own[0], made)
        able = candidates(kernels, own[0], tokens)
        found.candidates[row] = run_in_torch(able, asked=kernels != "all") if is_torch else able
    if not found.maps and pruned:
        raise BadInput(
            f"{RECIPE} is of another model: it prunes {next(iter(pruned))!r}, which is no layer here"
        )
    return found


def _map(recipe: Recipe, layers: Mapping[str, Layer], pattern: str) -> PrunedMap:
    """Return the sparsity map of one matrix, or of several matrices that are stacked along M."""
    rule = parse_pattern(pattern)
    mask = np.concatenate([_mask(recipe, name, layer) for name, layer in layers.items()])
    if rule.keeps == "tiles" and len(layers) == 1 and recipe.tiles.keys() >= layers.keys():
        return recipe.tiles[next(iter(layers))]
    try:
        return rule.map(mask)
    except BadInput:
        if rule.keeps != "tiles":
            raise
        # Zero weights inside of tiles, or a tile that spans two stacked matrices: derive tiles from the zeros
        heights = ZeroTilesPattern(height=rule.parameters.get("height", 64))
        return heights.map(heights.mask(mask.astype(np.float32), 0.0))


def _mask(recipe: Recipe, module: str, layer: Layer) -> MaskArray:
    """Return the mask (M, K): the stored tiles if there are any, otherwise the weights that are not zero."""
    tiles = recipe.tiles.get(module)
    if tiles is None or parse_pattern(recipe.pattern_of(module)).keeps != "tiles":
        return layer.kept
    mask = tiles.mask()
    if mask.shape != layer.shape or (layer.kept & ~mask).any():
        raise BadInput(f"{layer.name}: {TILES} is of other weights: they are not zero outside of its tiles")
    return mask
