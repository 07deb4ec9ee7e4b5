"""`zeros` and `zero-tiles:128`: the matrix comes pruned already, seen element by element or in tiles."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import piece_sizes, piece_starts
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, MatrixShape, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask
from prunecast.patterns.within import whole_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class ZerosPattern(Pattern):
    """The mask that the file states. Sources with stored zeros say so: hand in `Layer.kept` as importance."""

    family: ClassVar[str] = "zeros"
    example: ClassVar[str] = "zeros"
    meaning: ClassVar[str] = "the weights are pruned already: what is not zero stays"
    ranks: ClassVar[bool] = False

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Not a choice: the file has the sparsity it has."""
        if sparsity is not None:
            raise BadInput(f"{self.family} takes its sparsity from the file: wanted none, got {sparsity}")
        return 0.0

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """True where the importance is not zero."""
        return {name: scores != 0 for name, scores in importances.items()}

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """What is in the matrix and may be kept."""
        masks = self.masks(importances, sparsity)
        return {name: masks[name] & self.room(within[name]) for name in importances}

    def map(self, mask: MaskArray) -> TileMap | ElementMap:
        """Kept elements in compressed rows."""
        return element_map_from_mask(mask, self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroTilesPattern(ZerosPattern):
    """Tiles of `height` consecutive rows; a tile keeps every column in which any of its rows has a weight.

    The map says what work a tile kernel would do on the file as it is: all of it for scattered zeros, the
    kept share for weights that were pruned in such tiles.
    """

    family: ClassVar[str] = "zero-tiles"
    example: ClassVar[str] = "zero-tiles:128"
    meaning: ClassVar[str] = "as zeros, seen in tiles: HEIGHT rows keep a column where any of them does"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    @property
    def smallest(self) -> MatrixShape:
        """One tile."""
        return MatrixShape(self.height, 1)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """True in every row of a tile where the importance of any of them is not zero."""
        return {name: self._whole_segments(scores != 0) for name, scores in importances.items()}

    def room(self, within: MaskArray) -> MaskArray:
        """Segments that may be kept as a whole."""
        return whole_columns(within, self.height)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles; a mask that differs inside one is refused."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)

    def _whole_segments(self, stated: MaskArray) -> MaskArray:
        rows = stated.shape[0]
        kept = np.logical_or.reduceat(stated, piece_starts(rows, self.height), axis=0)
        return np.repeat(kept, piece_sizes(rows, self.height), axis=0)
