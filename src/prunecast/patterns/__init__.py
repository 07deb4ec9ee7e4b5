"""Pruning patterns: turn weights into importance, a mask, and the map that a kernel reads.

    weights (M, K) --importance--> importance --Pattern.prune--> mask
        --Pattern.map--> TileMap | ElementMap | NestedMap

The mask defines what is kept: a kept zero is still work, and `map` refuses a mask that breaks the pattern.

The package reads weights from files (`sources`), scores them, prunes them to a pattern at an exact sparsity
and describes the result. It contains nothing about GPUs, kernels or time, and it does not train.

Layer: the lowest one, like `hardware`. It imports only `errors` and other top-level helper modules.

Read first: `tile_map` (the terms), `pattern` (the interface), `tile_wise` (one complete pattern).
"""

from prunecast.patterns.element_map import (
    ElementMap,
    NestedMap,
    density,
    element_map_from_columns,
    element_map_from_mask,
    imbalance,
    retained_importance,
)
from prunecast.patterns.importance import CRITERIA, weigh
from prunecast.patterns.pattern import SCOPES, Pattern
from prunecast.patterns.pattern_names import PATTERNS, parse_pattern
from prunecast.patterns.tile_map import TileMap
from prunecast.patterns.tile_sums import TileSums
from prunecast.patterns.tiling import dense_tile_map, row_tile_map, tile_map_from_mask
from prunecast.plugins import load_installed as _load_installed

__all__ = [
    "CRITERIA",
    "PATTERNS",
    "SCOPES",
    "ElementMap",
    "NestedMap",
    "Pattern",
    "TileMap",
    "TileSums",
    "dense_tile_map",
    "density",
    "element_map_from_columns",
    "element_map_from_mask",
    "imbalance",
    "parse_pattern",
    "retained_importance",
    "row_tile_map",
    "tile_map_from_mask",
    "weigh",
]

# Last, so that the modules of other packages can import every name from here
PATTERNS.update(_load_installed("prunecast.patterns", type))
