"""Find the tiles of a layer: from a tile map, from a mask, or from the weights that are not zero."""

from typing import Any

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns import TileMap, parse_pattern
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.pattern import Pattern
from prunecast.patterns.plain import ZeroTilesPattern
from prunecast.patterns.tile_wise import TileWisePattern

Floats = npt.NDArray[np.floating[Any]]

MOST_BY_CHANCE = 0.01
"""Largest share of kept weights that may be zero. In fp16 about one in a million is, since values below half
of 6e-8 are rounded to zero.
"""


def tiles_of(weights: Floats, kept: TileMap | npt.NDArray[np.bool_] | None, pattern: str | None) -> TileMap:
    """Return the tiles of a layer.

    Parameters
    ----------
    weights : (M, K)
    kept : a tile map; or a bool mask (M, K), which needs its `pattern`; or None to keep all weights that are
        not zero. With None and the patterns `tile-wise`, `atp` and `zero-tiles`, a few weights inside tiles
        may be zero
    pattern : pattern string, e.g. `tile-wise:128`; not needed with a tile map

    Raises
    ------
    BadInput : the shapes differ, the pattern is missing or has no tiles, or the mask does not follow it
    """
    if isinstance(kept, TileMap):
        if (kept.m, kept.k) != weights.shape:
            raise BadInput(f"the tiles are of {kept.m} x {kept.k}, the weights of {weights.shape}")
        return kept
    if pattern is None:
        raise BadInput("a mask needs the pattern that it follows, e.g. tile-wise:128")
    found = parse_pattern(pattern)
    mask = _not_zero(weights, found) if kept is None else kept
    if mask.shape != weights.shape:
        raise BadInput(f"the mask must have the weights' shape {weights.shape}, got {mask.shape}")
    tiles = found.map(mask)
    if not isinstance(tiles, TileMap):
        raise BadInput(f"layers run patterns of tiles, {pattern} has none")
    return tiles


def _not_zero(weights: Floats, pattern: Pattern) -> npt.NDArray[np.bool_]:
    """Return the mask (M, K) of nonzero weights.

    If at most `MOST_BY_CHANCE` of the weights in the tiles' kept columns are zero, return the mask of these
    whole columns instead.
    """
    stated = np.asarray(weights != 0)
    if isinstance(pattern, AdaptiveTilePattern) and (pattern.shuffled or pattern.rows_first):
        return stated
    if not isinstance(pattern, TileWisePattern | AdaptiveTilePattern | ZeroTilesPattern):
        return stated
    whole = ZeroTilesPattern(height=pattern.height).masks({"layer": np.abs(weights)}, 0.0)["layer"]
    by_chance = np.count_nonzero(whole & ~stated) <= MOST_BY_CHANCE * np.count_nonzero(whole)
    return whole if by_chance or isinstance(pattern, ZeroTilesPattern) else stated
