"""`PrunedLayer`: what is left of one layer, from its weights or, where they say all, from sums over tiles."""

from typing import NamedTuple, Self, TypeGuard

import numpy as np

from prunecast.choice import PrunedMap
from prunecast.codesign.search.option_times import retained
from prunecast.patterns import Pattern, TileSums
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.importance import ImportanceArray


class PrunedLayer(NamedTuple):
    """A layer after pruning."""

    kept: PrunedMap
    importance: float
    """Retained."""
    weights: int
    """Kept."""

    @classmethod
    def of_sums(cls, pattern: AdaptiveTilePattern, sums: TileSums, sparsity: float | None) -> Self:
        """A pruned layer made from tile sums instead of weights; equal to `of_weights` up to rounding, which
        only equal columns notice.
        """
        fraction = pattern.sparsity_to_prune(sparsity)
        tiles = pattern.map_of_sums(sums, fraction)
        kept = int(np.dot(tiles.rows_per_tile.astype(np.int64), tiles.kept_per_tile.astype(np.int64)))
        return cls(tiles, sums.taller(pattern.height).retained(tiles), kept)

    @classmethod
    def of_weights(cls, pattern: Pattern, importance: ImportanceArray, sparsity: float | None) -> Self:
        """Prune the importance (M, K) of a layer."""
        mask = pattern.prune({"layer": importance}, sparsity)["layer"]
        return cls(pattern.map(mask), retained(importance, mask), int(np.count_nonzero(mask)))


def sums_say_all(pattern: Pattern, sums: TileSums) -> TypeGuard[AdaptiveTilePattern]:
    """Whether these sums are all that the pattern asks of a layer."""
    return (
        isinstance(pattern, AdaptiveTilePattern)
        and pattern.needs_only_sums
        and pattern.height % sums.height == 0
    )
