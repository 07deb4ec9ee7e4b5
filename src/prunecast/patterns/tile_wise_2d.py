"""`tile-wise-2d:128` (TW-2D): whole rows are pruned first, then segments of tiles of the surviving rows.

The published pattern prunes the same fraction along each axis: to reach sparsity s, each step prunes
s' = 1 - sqrt(1 - s) (Guo et al., SC'20; see `tile_wise`). Pruning s in each step would prune far more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.patterns.cut import elements_of_all, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.row_tiles import Scores
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tile_wise import TileWisePattern
from prunecast.patterns.tiling import RowTiles, tile_map_from_mask

ROWS_AT_ONCE = 64
"""Rows whose squares are in memory at the same time."""


def surviving_tiles(
    importances: Mapping[str, ImportanceArray], sparsity: float, height: int
) -> dict[str, RowTiles]:
    """Return the tiles of each layer after pruning the fraction `sparsity` of the rows of all layers."""
    scored = {name: _row_scores(scores) for name, scores in importances.items()}
    elements = {name: np.array([scores.shape[1]], dtype=np.int64) for name, scores in importances.items()}
    kept = keep_highest(scored, elements, elements_of_all(importances, sparsity))
    return {name: RowTiles.of(np.flatnonzero(own), height) for name, own in kept.items()}


def _row_scores(scores: ImportanceArray) -> ImportanceArray:
    """Return the root mean square of each row, (M,) float64."""
    parts = (scores[first : first + ROWS_AT_ONCE] for first in range(0, scores.shape[0], ROWS_AT_ONCE))
    sums = [np.square(rows, dtype=np.float64, order="C").sum(axis=1) for rows in parts]
    norms: ImportanceArray = np.sqrt(np.concatenate(sums))
    return norms / math.sqrt(scores.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWise2DPattern(TileWisePattern):
    """Tiles of `height` surviving rows (TW-2D).

    The first step prunes the fraction s' = 1 - sqrt(1 - sparsity) of the rows. The second step prunes columns
    of tiles until the sparsity is reached: s' of the surviving elements, except for rounding to whole rows.
    Both steps use one threshold for all layers.
    """

    family: ClassVar[str] = "tile-wise-2d"
    example: ClassVar[str] = "tile-wise-2d:128"
    meaning: ClassVar[str] = "whole rows go first, then as tile-wise on the rest"
    by_blocks: ClassVar[bool] = False

    def group(self, importances: Scores, sparsity: float) -> dict[str, RowTiles]:
        """Return tiles of the rows that the first step keeps."""
        return surviving_tiles(importances, 1.0 - math.sqrt(1.0 - sparsity), self.height)

    def map(self, mask: MaskArray) -> TileMap:
        """Return tiles of `height` surviving rows; a row that keeps nothing is in no tile."""
        check_mask(mask, self.canonical)
        rows = np.flatnonzero(mask.any(axis=1))
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical, rows=rows)
