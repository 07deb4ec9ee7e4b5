"""Plain patterns: `dense`, `unstructured`, `block`, and `zeros` of a matrix that comes pruned.

`dense` keeps everything, the baseline that every pattern is measured against; `unstructured` single elements,
the most important ones wherever they stand; `zeros` what the file states, `zero-tiles:128` the same seen in
tiles; `block:64x64` rectangles of the matrix that stay or go as a whole.
"""

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
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import tile_map_from_mask


def prune_unstructured(importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
    """Masks (M, K) without the lowest elements of the whole group of layers."""
    total = sum(scores.size for scores in importances.values())
    one_each = {name: np.ones((1, 1), dtype=np.int64) for name in importances}
    return keep_highest(importances, one_each, elements_to_prune(sparsity, total))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstructuredPattern(Pattern):
    """Any mask at all."""

    family: ClassVar[str] = "unstructured"
    example: ClassVar[str] = "unstructured"
    meaning: ClassVar[str] = "single weights, wherever they stand"

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_unstructured`."""
        return prune_unstructured(importances, sparsity)

    def map(self, mask: MaskArray) -> ElementMap:
        """Kept elements in compressed rows."""
        return element_map_from_mask(mask, self.canonical)


DENSE_TILE_HEIGHT = 128
"""Rows per tile of a dense map; any height describes the same matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePattern(Pattern):
    """All elements of every layer."""

    family: ClassVar[str] = "dense"
    example: ClassVar[str] = "dense"
    meaning: ClassVar[str] = "nothing is removed"
    keeps: ClassVar[Kept] = "tiles"
    ranks: ClassVar[bool] = False

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """0, which may be left out."""
        if sparsity:
            raise BadInput(f"dense only has sparsity 0, got {sparsity}")
        return 0.0

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """All True."""
        return np.ones(scores.shape, dtype=np.bool_)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `DENSE_TILE_HEIGHT` rows with all columns."""
        check_mask(mask, self.canonical)
        if not mask.all():
            raise BadInput(f"mask is not dense: {mask.size - np.count_nonzero(mask)} elements are pruned")
        return tile_map_from_mask(mask, height=DENSE_TILE_HEIGHT, pattern=self.canonical)


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

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """True where the importance is not zero."""
        return np.asarray(scores != 0)

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

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """True in every row of a tile where the importance of any of them is not zero."""
        rows = scores.shape[0]
        kept = np.logical_or.reduceat(scores != 0, piece_starts(rows, self.height), axis=0)
        return np.repeat(kept, piece_sizes(rows, self.height), axis=0)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles; a mask that differs inside one is refused."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)


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
        """Masks that prune the lowest rectangles of the whole group of layers."""
        sizes = (self.height, self.width)
        elements = {name: _elements(scores.shape, *sizes) for name, scores in importances.items()}
        scored = {name: _scores(scores, *sizes, elements[name]) for name, scores in importances.items()}
        total = sum(scores.size for scores in importances.values())
        kept = keep_highest(scored, elements, elements_to_prune(sparsity, total))
        return {name: _spread(kept[name], scores.shape, *sizes) for name, scores in importances.items()}

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
