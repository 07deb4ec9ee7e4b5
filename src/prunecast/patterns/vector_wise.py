"""`vector-wise:64`: groups of consecutive rows, each with the same number of kept columns.

The column vectors of a group compete only with each other, as in the vector-wise baseline of Guo et al.
(SC'20) and the unshuffled form of Huang et al., "Shfl-BW" (DAC'22). The score of a vector is the sum of its
importance. Our own choices: every group prunes the fewest columns that reach the sparsity, a last group may
have fewer rows, and of equal scores the lower column is kept.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune, piece_sizes, piece_starts, row_sums
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import keep_in_windows
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask


def prune_vector_wise(scores: ImportanceArray, sparsity: float, *, height: int) -> MaskArray:
    """Return a mask (M, K) without the lowest columns of each group of `height` consecutive rows."""
    sums = row_sums(scores, piece_starts(scores.shape[0], height), power=1)
    count = scores.shape[1] - elements_to_prune(sparsity, scores.shape[1])
    return np.repeat(highest_columns(sums, count), piece_sizes(scores.shape[0], height), axis=0)


def highest_columns(sums: ImportanceArray, count: int) -> MaskArray:
    """Return (groups, K) flags of the `count` highest columns of each group; of equals the lower is kept."""
    return keep_in_windows(sums, width=sums.shape[1], keep=count, keep_in_tail=0)


def check_equal_counts(tiles: TileMap) -> None:
    """Raise BadInput if tiles keep different numbers of columns; the message names the first."""
    kept = tiles.kept_per_tile
    if (other := kept != kept[0]).any():
        tile = int(np.flatnonzero(other)[0])
        raise BadInput(
            f"mask is not {tiles.pattern}: tile {tile} keeps {kept[tile]} columns, tile 0 keeps {kept[0]}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorWisePattern(Pattern):
    """Groups of `height` consecutive rows with equal numbers of kept columns."""

    family: ClassVar[str] = "vector-wise"
    example: ClassVar[str] = "vector-wise:64"
    meaning: ClassVar[str] = "HEIGHT consecutive rows share their kept columns, equally many in every group"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Prune with `prune_vector_wise`."""
        return prune_vector_wise(scores, sparsity, height=self.height)

    def map(self, mask: MaskArray) -> TileMap:
        """Return tiles of `height` consecutive rows that keep equal numbers of columns."""
        tiles = tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
        check_equal_counts(tiles)
        return tiles
