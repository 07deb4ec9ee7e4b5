"""`vector-wise:64`: groups of consecutive rows, each with the same number of kept columns.

Pruning ranks the column vectors of each group separately, as in the vector-wise baseline of Guo et al.
(SC'20) and the unshuffled form of Huang et al., "Shfl-BW" (DAC'22). The score of a vector is the sum of its
importance. Our own choices: every group prunes the fewest columns that reach the sparsity, a last group may
have fewer rows, and of equal scores the lower column is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import keep_in_windows
from prunecast.patterns.row_tiles import Masks, RowTilePattern, Scores
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import RowTiles, tile_map_from_mask


def columns_to_keep(k: int, sparsity: float) -> int:
    """Return the largest number of `k` columns that a tile can keep at this sparsity."""
    return k - elements_to_prune(sparsity, k)


def highest_of_each(scores: ImportanceArray, tiles: RowTiles, sparsity: float) -> MaskArray:
    """Return (tiles, K) flags of the highest columns of each tile, equally many in all tiles.

    Columns rank by the sum of their importance (M, K); of equal sums the lower column is kept.
    """
    k = scores.shape[1]
    return keep_in_windows(tiles.sums(scores), width=k, keep=columns_to_keep(k, sparsity), keep_in_tail=0)


def check_equal_counts(tiles: TileMap) -> None:
    """Raise BadInput if tiles keep different numbers of columns; the message names the first such tile."""
    kept = tiles.kept_per_tile
    if (other := kept != kept[0]).any():
        tile = int(np.flatnonzero(other)[0])
        raise BadInput(
            f"mask is not {tiles.pattern}: tile {tile} keeps {kept[tile]} columns, tile 0 keeps {kept[0]}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorWisePattern(RowTilePattern):
    """Groups of `height` consecutive rows with equal numbers of kept columns."""

    family: ClassVar[str] = "vector-wise"
    example: ClassVar[str] = "vector-wise:64"
    meaning: ClassVar[str] = "HEIGHT consecutive rows share their kept columns, equally many in every group"

    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> (tiles, K) flags of the columns that `highest_of_each` keeps."""
        return {name: highest_of_each(scores, tiles[name], sparsity) for name, scores in importances.items()}

    def map(self, mask: MaskArray) -> TileMap:
        """Return tiles of `height` consecutive rows that keep equal numbers of columns."""
        tiles = tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
        check_equal_counts(tiles)
        return tiles
