"""Tile maps for benchmarks, and 2:4 inside of tiles."""

from itertools import combinations

import numpy as np

from prunecast.patterns import ElementMap, TileMap
from prunecast.patterns.element_map import element_map_from_mask

__all__ = ["equal_tiles", "two_of_four_in"]


def equal_tiles(m: int, k: int, kept: int, height: int = 128) -> TileMap:
    """Tiles of `height` rows, each with its own `kept` random columns."""
    rng = np.random.default_rng(0)
    row_start = np.minimum(np.arange(-(-m // height) + 1) * height, m)
    tiles = row_start.size - 1
    columns = [np.sort(rng.choice(k, kept, replace=False)) for _ in range(tiles)]
    return TileMap(
        m=m,
        k=k,
        row_start=row_start.astype(np.int32),
        row_index=np.arange(m, dtype=np.int32),
        column_start=(np.arange(tiles + 1) * kept).astype(np.int32),
        column_index=np.concatenate(columns).astype(np.int32),
        pattern=f"tile-wise:{height}",
    )


def two_of_four_in(tiles: TileMap, seed: int = 0) -> ElementMap:
    """Two random elements of every four neighbours in the list of a tile, for each of its rows."""
    rng = np.random.default_rng(seed)
    pairs = np.array([[place in pair for place in range(4)] for pair in combinations(range(4), 2)])
    mask = np.zeros((tiles.m, tiles.k), np.bool_)
    for t in range(tiles.tile_count):
        rows = tiles.row_index[tiles.row_start[t] : tiles.row_start[t + 1]]
        columns = tiles.column_index[tiles.column_start[t] : tiles.column_start[t + 1]]
        kept = pairs[rng.integers(0, 6, (rows.size, -(-columns.size // 4)), np.uint8)]
        mask[np.ix_(rows, columns)] = kept.reshape(rows.size, -1)[:, : columns.size]
    return element_map_from_mask(mask, tiles.pattern)
