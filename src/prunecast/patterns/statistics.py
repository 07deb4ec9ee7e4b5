"""How good a mask is and how even its work: the few numbers that tables show beside a pattern."""

import numpy as np

from prunecast.patterns.element_map import ElementMap, NestedMap
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray, TileMap


def retained_importance(importance: ImportanceArray, mask: MaskArray) -> float:
    """Kept share of the summed importance (M, K), 0 to 1; 1 where there is none to lose."""
    total = float(importance.sum(dtype=np.float64))
    kept = float(np.sum(importance, where=mask, dtype=np.float64))
    return kept / total if total > 0 else 1.0


def density(mask: MaskArray) -> float:
    """Kept elements over all elements."""
    return np.count_nonzero(mask) / mask.size


def imbalance(tiles: TileMap | ElementMap | NestedMap) -> float:
    """Most over mean of the elements kept per tile (per row of an element map); 1 is even.

    Of elements in tiles, the tiles count: they are what a block works through.
    It bounds how much longer the heaviest tile takes than its fair share. A map that keeps nothing is even.
    """
    if isinstance(tiles, NestedMap):
        tiles = tiles.tiles
    kept = tiles.kept_per_row if isinstance(tiles, ElementMap) else tiles.rows_per_tile * tiles.kept_per_tile
    if kept.size == 0 or not kept.any():
        return 1.0
    return float(kept.max() / kept.mean())
