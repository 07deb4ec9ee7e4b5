"""`block:64x64`: rectangles of the matrix that stay or go as a whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import (
    CountArray,
    broadcast_sizes,
    column_sums,
    elements_to_prune,
    keep_highest,
    piece_sizes,
    piece_starts,
    row_sums,
)
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask


def _elements(shape: tuple[int, ...], height: int, width: int) -> CountArray:
    """Elements of each rectangle; an axis that it divides evenly has length 1."""
    rows, columns = piece_sizes(shape[0], height), piece_sizes(shape[1], width)
    return np.outer(broadcast_sizes(rows), broadcast_sizes(columns))


def _scores(scores: ImportanceArray, height: int, width: int, elements: CountArray) -> ImportanceArray:
    """L2 norm of each rectangle over the root of its element count, so that the smaller ones at the right and
    lower edge compete on equal terms.
    """
    means = column_sums(row_sums(scores, piece_starts(scores.shape[0], height), power=2), width)
    means /= elements
    return np.sqrt(means, out=means)


def _spread(kept: MaskArray, shape: tuple[int, ...], height: int, width: int) -> MaskArray:
    wide = np.repeat(kept, piece_sizes(shape[1], width), axis=1)
    return np.repeat(wide, piece_sizes(shape[0], height), axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSparsePattern(Pattern):
    """Aligned rectangles of `height` rows and `width` columns, smaller at the right and lower edge."""

    family: ClassVar[str] = "block"
    example: ClassVar[str] = "block:64x64"
    meaning: ClassVar[str] = "rectangles of HEIGHTxWIDTH stay or go as a whole"
    keeps: ClassVar[Kept] = "tiles"

    height: int
    width: int

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Without the lowest rectangles of the whole group of layers."""
        sizes = (self.height, self.width)
        elements = {name: _elements(scores.shape, *sizes) for name, scores in importances.items()}
        scored = {name: _scores(scores, *sizes, elements[name]) for name, scores in importances.items()}
        total = sum(scores.size for scores in importances.values())
        kept = keep_highest(scored, elements, elements_to_prune(sparsity, total))
        return {name: _spread(kept[name], scores.shape, *sizes) for name, scores in importances.items()}

    def room(self, within: MaskArray) -> MaskArray:
        """Rectangles that may be kept as a whole."""
        inside = row_sums(within, piece_starts(within.shape[0], self.height), power=1)
        whole = column_sums(inside, self.width) == _elements(within.shape, self.height, self.width)
        return _spread(whole, within.shape, self.height, self.width)

    def map(self, mask: MaskArray) -> TileMap:
        """One tile per row of rectangles; its columns come in whole rectangles."""
        tiles = tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
        starts = piece_starts(tiles.k, self.width)
        kept = np.add.reduceat(mask[:: self.height], starts, axis=1, dtype=np.int32)
        partial = (kept > 0) & (kept < piece_sizes(tiles.k, self.width))
        if partial.any():
            tile, block = (int(index[0]) for index in np.nonzero(partial))
            first = int(starts[block])
            raise BadInput(
                f"mask is not {self.canonical}: tile {tile} keeps {kept[tile, block]} of the "
                f"{piece_sizes(tiles.k, self.width)[block]} columns from {first}"
            )
        return tiles
