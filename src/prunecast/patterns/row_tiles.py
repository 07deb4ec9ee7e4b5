"""Tiles of rows: which rows form a tile, what its columns are worth, and the cut of all columns of all tiles.

Families of tiles differ in these steps only: the grouping (neighbouring rows, surviving rows, rows with
similar columns), the score of a column of a tile, and the cut (one threshold, or counts close to each other).
"""

from collections.abc import Mapping
from typing import NamedTuple, Self

import numpy as np

from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest, row_sums
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import MaskArray


class RowTiles(NamedTuple):
    """Rows of one layer in the order of its tiles; rows in no tile are pruned."""

    rows: CountArray
    """Rows of A."""
    starts: CountArray
    """Position in `rows` where each tile begins, (tiles,)."""
    heights: CountArray
    """Rows of each tile, (tiles,)."""

    @classmethod
    def of(cls, rows: CountArray, height: int) -> Self:
        """Return tiles of `height` consecutive entries of `rows`; the last tile may have fewer."""
        starts = np.arange(0, rows.size, height)
        return cls(rows, starts, np.diff(starts, append=rows.size))

    def sums(self, scores: ImportanceArray | MaskArray, *, power: int = 1) -> ImportanceArray:
        """Return the sums of scores (M, K) ** power over the rows of each tile, (tiles, K) float64."""
        own = scores if self._are_all(scores.shape[0]) else scores[self.rows]
        return row_sums(own, self.starts, power=power)

    def root_mean_squares(self, scores: ImportanceArray) -> ImportanceArray:
        """Return the L2 norm of each column of a tile over the root of its length, (tiles, K) float64.

        The released code of tile-wise pruning divides by the length, so that scores fall as 1 / sqrt(length).
        Consequences: short last tiles are favoured, and layers with a large K lose more rows. It also counts
        pruned rows of `tile-wise-2d` as length.
        """
        norms = self.sums(scores, power=2)
        np.sqrt(norms, out=norms)
        norms /= np.sqrt(self.heights)[:, None]
        return norms

    def spread(self, kept: MaskArray, m: int) -> MaskArray:
        """Return the mask (M, K) from the columns that each tile keeps (tiles, K)."""
        of_rows: MaskArray = np.repeat(kept, self.heights, axis=0)
        if self._are_all(m):
            return of_rows
        mask = np.zeros((m, kept.shape[1]), dtype=np.bool_)
        mask[self.rows] = of_rows
        return mask

    def _are_all(self, m: int) -> bool:
        return self.rows.size == m and bool((self.rows == np.arange(m)).all())


def missing_elements(
    importances: Mapping[str, ImportanceArray], tiles: Mapping[str, RowTiles], sparsity: float
) -> int:
    """Return the elements that all tiles of a group of layers must prune to reach a sparsity.

    Rows in no tile count as pruned.
    """
    total = sum(scores.size for scores in importances.values())
    dead = sum(
        (len(scores) - tiles[name].rows.size) * scores.shape[1] for name, scores in importances.items()
    )
    return int(elements_to_prune(sparsity, total) - dead)


def cut_columns(
    importances: Mapping[str, ImportanceArray],
    tiles: Mapping[str, RowTiles],
    scored: Mapping[str, ImportanceArray],
    sparsity: float,
) -> dict[str, MaskArray]:
    """Return masks (M, K) without the columns of tiles that score lowest in the group of layers."""
    elements = {name: own.heights[:, None] for name, own in tiles.items()}
    kept = keep_highest(scored, elements, missing_elements(importances, tiles, sparsity))
    return {name: tiles[name].spread(kept[name], len(scores)) for name, scores in importances.items()}
