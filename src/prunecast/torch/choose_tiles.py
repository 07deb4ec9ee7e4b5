"""Choose the tiles of every layer of a model, by magnitude pruning or from existing zeros."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from prunecast.codesign.recipe import Recipe
from prunecast.errors import BadInput
from prunecast.kernels import KERNELS
from prunecast.patterns import NestedMap, Pattern, TileMap, parse_pattern
from prunecast.patterns.calibration import Calibration
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tiling import dense_tile_map
from prunecast.torch.epilogue import GATED_ROWS, interleaved
from prunecast.torch.feed_forward import FeedForward
from prunecast.torch.find import Found, is_convolution, matrix_of
from prunecast.torch.kept import tiles_of
from prunecast.torch.layer_table import dtype_name
from prunecast.torch.packed import ProductRows
from prunecast.workload.pruned_maps import no_taller_than

LEAST_SPARSITY = 0.3
"""Least sparsity of a layer that becomes sparse. Others stay dense unless a recipe gives their pattern."""
OFF_RECIPE = 0.01
"""Largest accepted excess of a layer's density over its recipe, needed where tile sizes do not divide the
layer.
"""


class Choice(NamedTuple):
    """A layer, the tiles that it keeps, and the 2:4 mask inside them if there is one."""

    layer: Found
    tiles: TileMap
    two_of_four: npt.NDArray[np.uint8] | None = None
    """(M, K / 8) uint8: bits of the 2:4 mask inside the tiles; None if the tiles keep all their elements."""

    @property
    def density(self) -> float:
        """Share of the weights that is kept."""
        if self.two_of_four is None:
            return self.tiles.density
        return int(np.bitwise_count(self.two_of_four).sum(dtype=np.int64)) / (self.tiles.m * self.tiles.k)

    def kept(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the weights (M, K) with zeros where the 2:4 mask is False."""
        if self.two_of_four is None:
            return weights
        bits = np.unpackbits(self.two_of_four, axis=1, count=self.tiles.k)
        return weights * torch.from_numpy(bits).to(weights.device)


def choose_tiles(
    found: list[Found],
    wanted: set[str],
    recipe: Recipe,
    sparsity: float | None,
    forwards: list[FeedForward],
    squares: Mapping[str, Any] | None = None,
) -> tuple[list[Choice], list[str]]:
    """Return the layers that become sparse, with their tiles, and the reasons why others stay dense.

    Parameters
    ----------
    found : all layers that can become sparse
    wanted : names of the requested layers
    sparsity : target for pruning by magnitude; None to use the existing zeros
    forwards : feed-forward layers whose gate and up matrices may be pruned together
    squares : name of a weight -> mean square of each of its inputs; None to use only magnitudes

    Raises
    ------
    BadInput : the recipe has an unknown layer or pattern, the zeros do not follow it, or no layer is sparse
        enough
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
        if sparsity is not None and not matrix_of(layer.module).any():
            left.append(f"{layer.name}: all its weights are zero")
            continue
        together = joint.get(layer.name)
        choice = (
            _choice(layer, recipe, sparsity, known, is_gated=layer.name in gated)
            if together is None
            else Choice(layer, together)
        )
        if 1.0 - choice.density < LEAST_SPARSITY and layer.name not in recipe.patterns:
            left.append(f"{layer.name}: {1.0 - choice.density:.0%} sparse, dense is faster")
            continue
        chosen.append(choice)
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
    """Return name -> tiles for gate and up matrices that are pruned together.

    The epilogue of a gated unit needs row i of gate and row i of up in the same tile. Half of the rows
    of a tile therefore come from gate and half from up. Each of the two matrices has tiles of half the
    height, and both keep the same columns.
    """
    layers, tiles = {layer.name: layer for layer in found}, {}
    for forward in forwards:
        patterns = {recipe.pattern_of(name) for name in forward.first}
        half = _of_half_height(recipe.pattern_of(forward.first[0]))
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
            own = ProductRows(number, gate.shape[0], interleaved=True).of(mask).reshape(gate.shape)
            kept = half.map(own.numpy())
            assert isinstance(kept, TileMap)
            tiles[name] = kept
    return tiles


def _of_half_height(pattern: str) -> Pattern | None:
    """Return a `tile-wise` or `block` pattern with tiles of half the height.

    Return None for other patterns, or if half the height is no multiple of `GATED_ROWS`.
    """
    name, _, sizes = pattern.partition(":")
    height, by, width = sizes.partition("x")
    known = (name, bool(by)) in (("tile-wise", False), ("block", True))
    if not known or not height.isdecimal() or int(height) % (2 * GATED_ROWS):
        return None
    return parse_pattern(f"{name}:{int(height) // 2}{by}{width}")


def _weighed(name: str, magnitudes: ImportanceArray, known: Calibration | None) -> ImportanceArray:
    return magnitudes if known is None else known.weigh(f"{name}.weight", magnitudes)


def _choice(
    layer: Found, recipe: Recipe, sparsity: float | None, known: Calibration | None, *, is_gated: bool
) -> Choice:
    """Return a layer with its tiles, found by pruning or, if `sparsity` is None, from its zeros.

    If `is_gated` is set (gate or up), the zeros may also follow the tiles of half the height that
    `_joint_tiles` returns.
    """
    weights = matrix_of(layer.module)
    dtype_name(weights.dtype)
    array = weights.float().cpu().numpy()
    pattern = no_taller_than(recipe.pattern_of(layer.name), len(array))
    if sparsity is not None:
        mask = pattern.prune({layer.name: _weighed(layer.name, np.abs(array), known)}, sparsity)[layer.name]
        return _mapped(layer, pattern, mask)
    _check_said(layer.name, recipe, pattern, np.count_nonzero(array) / array.size)
    if _is_two_of_four(pattern):
        choice = _mapped(layer, pattern, array != 0)
        _check_said(layer.name, recipe, pattern, choice.density)
        return choice
    if layer.name in recipe.tiles and pattern.keeps == "tiles":
        tiles = _stored(layer.name, array, recipe.tiles[layer.name])
    else:
        tiles = _tiles_of_zeros(layer.name, array, pattern.canonical, is_gated=is_gated)
    _check_said(layer.name, recipe, pattern, tiles.density)
    return Choice(layer, tiles)


def _check_said(name: str, recipe: Recipe, pattern: Pattern, density: float) -> None:
    """Raise BadInput if a layer has fewer zeros than the recipe requires."""
    said = recipe.sparsities.get(name)
    if said is not None and 1.0 - density < said - OFF_RECIPE:
        raise BadInput(
            f"{name}: the recipe says {said:.1%} zeros of {pattern.canonical}, the weights have "
            f"{1.0 - density:.1%}: load the pruned weights into the model first"
        )


def _is_two_of_four(pattern: Pattern) -> bool:
    """Return whether the pattern is 2:4, in whole matrices or inside tiles."""
    return KERNELS["2:4"].runs(pattern.canonical, pattern.keeps)


def _mapped(layer: Found, pattern: Pattern, mask: MaskArray) -> Choice:
    """Return the layer with the tiles of a mask, and with the 2:4 mask inside them if the pattern has one."""
    try:
        kept = pattern.map(mask)
    except BadInput as error:
        raise BadInput(f"{layer.name}: {error}") from None
    if isinstance(kept, TileMap):
        return Choice(layer, kept)
    if not _is_two_of_four(pattern) or is_convolution(layer.module):
        what = "convolutions in tiles" if _is_two_of_four(pattern) else "patterns of tiles and 2:4"
        raise BadInput(f"prunecast.torch runs {what}, {pattern.canonical} has none")
    m, k = mask.shape
    whole = dense_tile_map(m, k, m)
    tiles = kept.tiles if isinstance(kept, NestedMap) else replace(whole, pattern=pattern.canonical)
    return Choice(layer, tiles, np.packbits(mask, axis=1))


def _stored(name: str, array: ImportanceArray, tiles: TileMap) -> TileMap:
    """Return the tiles that a recipe contains for a layer, after a check against its weights.

    Weights inside the tiles may be zero. Raise BadInput if a weight outside is not zero, or the sizes differ.
    """
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
        if is_gated and (half := _of_half_height(pattern)) is not None:
            with suppress(BadInput):
                return tiles_of(array, None, half.canonical)
        raise BadInput(f"{name}: {error}") from None
