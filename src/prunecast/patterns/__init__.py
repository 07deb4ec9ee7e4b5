"""The weights that stay: from weights to importance, to a mask, to the map that a kernel walks.

    weights (M, K) --importance--> importance --Pattern.prune--> mask
        --Pattern.map--> TileMap | ElementMap | NestedMap

The mask is the truth: a kept zero is still work, and a map that a mask does not bear out is refused.

This room reads weights from files (`sources`), scores them, prunes them to a pattern at an exact sparsity
and describes the outcome. It knows nothing of GPUs, kernels or time, and trains nothing.

Floor: the ground, beside `hardware`; it imports `errors` and nothing else of the project.

Read first: `tile_map` (the words), `pattern` (what a pattern can do), `tile_wise` (one whole pattern).
"""

from prunecast.patterns.element_map import (
    ElementMap,
    NestedMap,
    density,
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
    "element_map_from_mask",
    "imbalance",
    "parse_pattern",
    "retained_importance",
    "row_tile_map",
    "tile_map_from_mask",
    "weigh",
]
