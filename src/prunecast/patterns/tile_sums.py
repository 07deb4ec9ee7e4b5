"""`TileSums`: importance added up over tiles of neighbouring rows, all that some patterns ask of a matrix.

64 rows to a tile make it a 32nd of the bytes of a float32 matrix, so that the sums of a model with billions
of weights fit where its weights do not.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, piece_sizes, piece_starts, row_sums
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.tile_map import TileMap


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TileSums:
    """Sums of each column over the rows of each tile.

    Parameters
    ----------
    m : rows of the matrix
    height : rows of a tile, the last one possibly fewer
    sums : (tiles, K) float64
    """

    m: int
    height: int
    sums: npt.NDArray[np.float64]

    @classmethod
    def of(cls, importance: ImportanceArray, height: int) -> Self:
        """Column sums of importance of a matrix (M, K), tile by tile, in one pass."""
        m = importance.shape[0]
        sums = row_sums(importance, piece_starts(m, height), power=1)
        return cls(m=m, height=height, sums=np.asarray(sums, dtype=np.float64))

    @property
    def k(self) -> int:
        """Columns of the matrix."""
        return int(self.sums.shape[1])

    @property
    def heights(self) -> CountArray:
        """(tiles,) int64: rows of each tile."""
        return piece_sizes(self.m, self.height)

    def taller(self, height: int) -> Self:
        """Sums of taller tiles made of whole tiles of these. Raises BadInput if `height` is no multiple."""
        if height % self.height:
            raise BadInput(f"wanted a height that is a multiple of {self.height}, got {height}")
        if height == self.height:
            return self
        starts = piece_starts(self.sums.shape[0], height // self.height)
        return type(self)(m=self.m, height=height, sums=np.add.reduceat(self.sums, starts, axis=0))

    def retained(self, tiles: TileMap) -> float:
        """Importance that stays where `tiles`, of these very rows, keep what they keep."""
        tile_of_column = np.repeat(np.arange(tiles.tile_count), tiles.kept_per_tile)
        return float(self.sums[tile_of_column, tiles.column_index].sum())
