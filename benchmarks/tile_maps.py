"""Tile maps for benchmarks."""

import numpy as np

from prunecast.patterns import TileMap

__all__ = ["equal_tiles"]


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
