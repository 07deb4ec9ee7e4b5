"""What every layer of a model keeps: pruned here by magnitude, or the zeros that are there."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch

from prunecast.errors import BadInput
from prunecast.patterns import Pattern, TileMap, parse_pattern
from prunecast.patterns.calibration import Calibration
from prunecast.patterns.importance import ImportanceArray
from prunecast.torch.epilogue import GATED_ROWS, interleaved
from prunecast.torch.feed_forward import FeedForward
from prunecast.torch.find import Found, matrix_of
from prunecast.torch.kept import tiles_of
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.packed import Rows
from prunecast.torch.recipe import Recipe

LEAST_SPARSITY = 0.3
"""Layers that keep more stay dense, unless a recipe names them: no kernel gains there by itself."""
OFF_RECIPE = 0.01
"""Share of a layer's weights that may be kept beyond its recipe, where sizes do not divide."""


class Choice(NamedTuple):
    """A layer and what it will keep."""

    layer: Found
    tiles: TileMap


def choose_tiles(
    found: list[Found],
    wanted: set[str],
    recipe: Recipe,
    sparsity: float | None,
    forwards: list[FeedForward],
    squares: Mapping[str, Any] | None = None,
) -> tuple[list[Choice], list[str]]:
    """Layers that become sparse, with their tiles; and why others stay dense.

    Parameters
    ----------
    wanted : names of layers that were asked for
    sparsity : to prune to, by magnitude; None for the zeros that are there
    forwards : feed-forward layers whose gate and up may be pruned together
    squares : name of a weight -> mean square of each of its inputs; None for magnitudes alone

    Raises
    ------
    BadInput : an unknown layer or pattern, zeros that do not follow the recipe, or no layer has enough
    """
    chosen, left = [], []
    unknown = [name for name in recipe.sparsities if name not in {layer.name for layer in found}]
    if unknown:
        raise BadInput(f"the recipe prunes {unknown[0]!r}, which the model has no linear layer of")
    in_recipe = wanted.intersection(recipe.sparsities) if recipe.sparsities else wanted
    known = None if squares is None else Calibration("squares", squares)
    joint = {} if sparsity is None else _joint_tiles(found, in_recipe, recipe, sparsity, forwards, known)
    gated = {name for forward in forwards if forward.is_gated for name in forward.first}
    for layer in found:
        if layer.name not in wanted:
            left.append(f"{layer.name}: not asked for")
            continue
        if layer.name not in in_recipe:
            left.append(f"{layer.name}: not in the recipe")
            continue
        tiles = joint.get(layer.name) or _tiles(layer, recipe, sparsity, known, is_gated=layer.name in gated)
        if 1.0 - tiles.density < LEAST_SPARSITY and layer.name not in recipe.patterns:
            left.append(f"{layer.name}: {1.0 - tiles.density:.0%} sparse, dense is faster")
            continue
        chosen.append(Choice(layer, tiles))
    if not chosen:
        why = left[0] if left else "the model has no linear layers"
        raise BadInput(f"no layer has enough zeros of {recipe.pattern} to become sparse ({why})")
    return chosen, left


def _joint_tiles(
    found: list[Found],
    wanted: set[str],
    recipe: Recipe,
    sparsity: float,
    forwards: list[FeedForward],
    known: Calibration | None,
) -> dict[str, TileMap]:
    """Tiles of gates and ups that are pruned together, by name.

    The epilogue of a gated unit needs a row of the gate in the same tile as that of up: tiles have half of
    their rows from each, and both layers have the pattern of half the height, with the same columns.
    """
    layers, tiles = {layer.name: layer for layer in found}, {}
    for forward in forwards:
        patterns = {recipe.pattern_of(name) for name in forward.first}
        half = _half_as_high(recipe.pattern_of(forward.first[0]))
        if (
            not forward.is_gated
            or len(patterns) > 1
            or half is None
            or not wanted >= {*forward.first, forward.last}
        ):
            continue
        gate, up = (matrix_of(layers[name].module) for name in forward.first)
        both = _weighed(forward.first[0], interleaved(gate, up).float().abs().cpu().numpy(), known)
        mask = torch.from_numpy(parse_pattern(patterns.pop()).prune({"both": both}, sparsity)["both"])
        for number, name in enumerate(forward.first):
            own = Rows(number, gate.shape[0], interleaved=True).of(mask).reshape(gate.shape)
            kept = half.map(own.numpy())
            assert isinstance(kept, TileMap)
            tiles[name] = kept
    return tiles


def _half_as_high(pattern: str) -> Pattern | None:
    """The tile-wise pattern with tiles of half the height, for those whose tiles are whole groups of rows."""
    name, _, height = pattern.partition(":")
    if name != "tile-wise" or not height.isdecimal() or int(height) % (2 * GATED_ROWS):
        return None
    return parse_pattern(f"{name}:{int(height) // 2}")


def _weighed(name: str, magnitudes: ImportanceArray, known: Calibration | None) -> ImportanceArray:
    return magnitudes if known is None else known.weigh(f"{name}.weight", magnitudes)


def _tiles(
    layer: Found, recipe: Recipe, sparsity: float | None, known: Calibration | None, *, is_gated: bool
) -> TileMap:
    """What the layer keeps; the zeros of a gate or up may be those of tiles that it shares with the other."""
    weights = matrix_of(layer.module)
    dtype_name(weights.dtype)
    array = weights.float().cpu().numpy()
    pattern = parse_pattern(recipe.pattern_of(layer.name))
    if sparsity is not None:
        mask = pattern.prune({layer.name: _weighed(layer.name, np.abs(array), known)}, sparsity)[layer.name]
        kept = pattern.map(mask)
        if not isinstance(kept, TileMap):
            raise BadInput(f"prunecast.torch runs patterns of tiles, {pattern.canonical} has none")
        return kept
    if layer.name in recipe.tiles and pattern.keeps == "tiles":
        tiles = _stored(layer.name, array, recipe.tiles[layer.name])
    else:
        tiles = _tiles_of_zeros(layer.name, array, recipe.pattern_of(layer.name), is_gated=is_gated)
    said = recipe.sparsities.get(layer.name)
    if said is not None and 1.0 - tiles.density < said - OFF_RECIPE:
        raise BadInput(
            f"{layer.name}: the recipe says {said:.1%} zeros of {pattern.canonical}, the weights have "
            f"{1.0 - tiles.density:.1%}"
        )
    return tiles


def _stored(name: str, array: ImportanceArray, tiles: TileMap) -> TileMap:
    """The tiles that a layer was pruned to; a weight that is zero by chance changes nothing."""
    if (tiles.m, tiles.k) != array.shape:
        raise BadInput(
            f"{name}: the recipe's tiles are of {tiles.m} x {tiles.k}, the weights of {array.shape}"
        )
    outside = np.count_nonzero(array) - np.count_nonzero(array[tiles.mask()])
    if outside:
        raise BadInput(
            f"{name}: wanted zeros outside of the recipe's tiles, got {outside} weights that are none"
        )
    return tiles


def _tiles_of_zeros(name: str, array: ImportanceArray, pattern: str, *, is_gated: bool) -> TileMap:
    try:
        return tiles_of(array, None, pattern)
    except BadInput as error:
        if is_gated and (half := _half_as_high(pattern)) is not None:
            with suppress(BadInput):
                return tiles_of(array, None, half.canonical)
        raise BadInput(f"{name}: {error}") from None
