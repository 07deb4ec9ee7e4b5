"""Layers and tile maps that kernels are checked and timed on."""

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.patterns import TileMap

GPU = load_gpu("h200-sxm")
ROWS = 128
"""Height of tiles."""

LAYERS = (
    (4096, 4096, 2048),
    (11008, 4096, 2048),
    (4096, 11008, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 1024, 8192),
    (1024, 4096, 8192),
    (3072, 768, 4096),
    (768, 3072, 4096),
    (512, 2048, 4096),
    (256, 2304, 12544),
    (512, 4608, 3136),
)
LARGE = tuple(layer for layer in LAYERS if layer[0] >= 4096 and layer[1] >= 4096)


def tile_map(m: int, k: int, density: float) -> TileMap:
    """Tiles of 128 rows with equally many random columns; the same sizes give the same map everywhere."""
    rng = np.random.default_rng([m, k, round(1000 * density)])
    row_start = np.minimum(np.arange(-(-m // ROWS) + 1) * ROWS, m)
    kept = round(k * density)
    columns = [np.sort(rng.permutation(k)[:kept]) for _ in row_start[1:]]
    return TileMap(
        m=m,
        k=k,
        row_start=row_start,
        row_index=np.arange(m),
        column_start=np.arange(row_start.size) * kept,
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{ROWS}",
    )
