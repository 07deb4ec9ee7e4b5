"""Basic patterns: `dense`, `unstructured`, `block`, and `zeros` of a matrix that is already pruned.

`dense` keeps everything; it is the baseline of all other patterns. `unstructured` keeps the most important
elements, wherever they are. `zeros` keeps the nonzero weights of a matrix that is already pruned, and
`zero-tiles:128` keeps the columns of each tile that contain nonzero weights. `block:64x64` keeps or prunes
aligned rectangles of the matrix as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import (
    broadcast_sizes,
    column_sums,
    elements_of_all,
    keep_highest,
    piece_sizes,
    piece_starts,
)
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.row_tiles import Masks, RowTilePattern, Scores
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import RowTiles, tile_map_from_mask


def prune_unstructured(importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
    """Return masks (M, K) that prune the lowest elements, by one ranking of all layers."""
    return keep_highest(importances, None, elements_of_all(importances, sparsity))


@dataclass(frozen=True, slots=True, kw_only=True)
class UnstructuredPattern(Pattern):
    """Single elements at any position: every mask is valid."""

    family: ClassVar[str] = "unstructured"
    example: ClassVar[str] = "unstructured"
    meaning: ClassVar[str] = "single weights, wherever they stand"

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Return the masks (M, K) of all layers that `prune_unstructured` makes."""
        return prune_unstructured(importances, sparsity)

    def map(self, mask: MaskArray) -> ElementMap:
        """Return the kept elements in compressed rows."""
        return element_map_from_mask(mask, self.canonical)


DENSE_TILE_HEIGHT = 128
"""Rows per tile of a dense map; any height describes the same matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DensePattern(Pattern):
    """Pattern that keeps all elements of every layer."""

    family: ClassVar[str] = "dense"
    example: ClassVar[str] = "dense"
    meaning: ClassVar[str] = "nothing is removed"
    keeps: ClassVar[Kept] = "tiles"
    ranks: ClassVar[bool] = False

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return 0, the only sparsity of the pattern. Raises BadInput for any other."""
        if sparsity:
            raise BadInput(f"dense only has sparsity 0, got {sparsity}")
        return 0.0

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Return a mask (M, K) of all True."""
        return np.ones(scores.shape, dtype=np.bool_)

    def map(self, mask: MaskArray) -> TileMap:
        """Return tiles of `DENSE_TILE_HEIGHT` rows with all columns.

        Raises BadInput if an element is pruned.
        """
        check_mask(mask, self.canonical)
        if not mask.all():
            raise BadInput(f"mask is not dense: {mask.size - np.count_nonzero(mask)} elements are pruned")
        return tile_map_from_mask(mask, height=DENSE_TILE_HEIGHT, pattern=self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZerosPattern(Pattern):
    """Pattern that keeps the nonzero weights of a matrix that is already pruned.

    If the file stores explicit zeros that count as kept, pass `Layer.kept` as the importance.
    """

    family: ClassVar[str] = "zeros"
    example: ClassVar[str] = "zeros"
    meaning: ClassVar[str] = "the weights are pruned already: what is not zero stays"
    ranks: ClassVar[bool] = False

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return 0, which `mask` ignores. Raises BadInput if a sparsity is given: the file determines it."""
        if sparsity is not None:
            raise BadInput(f"{self.family} takes its sparsity from the file: wanted none, got {sparsity}")
        return 0.0

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Return the mask (M, K) that is True where the importance is not zero."""
        return np.asarray(scores != 0)

    def map(self, mask: MaskArray) -> TileMap | ElementMap:
        """Return the kept elements in compressed rows."""
        return element_map_from_mask(mask, self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroTilesPattern(ZerosPattern):
    """Tiles of `height` consecutive rows; a tile keeps every column in which any of its rows has a weight.

    The map describes the work of a tile kernel on an already pruned matrix: nearly all columns if zeros are
    scattered, the kept fraction if the weights were pruned in such tiles.
    """

    family: ClassVar[str] = "zero-tiles"
    example: ClassVar[str] = "zero-tiles:128"
    meaning: ClassVar[str] = "as zeros, seen in tiles: HEIGHT rows keep a column where any of them does"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Return the mask (M, K). A tile keeps a column if any of its rows has nonzero importance there."""
        tiles = RowTiles.of(np.arange(len(scores)), self.height)
        return tiles.spread(tiles.sums(scores != 0) > 0, len(scores))

    def map(self, mask: MaskArray) -> TileMap:
        """Return the tiles. Raises BadInput if rows of one tile differ."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSparsePattern(RowTilePattern):
    """Aligned rectangles of `height` rows and `width` columns, smaller at the right and lower edge."""

    family: ClassVar[str] = "block"
    example: ClassVar[str] = "block:64x64"
    meaning: ClassVar[str] = "rectangles of HEIGHTxWIDTH stay or go as a whole"
    by_blocks: ClassVar[bool] = True

    width: int

    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> (tiles, K) flags of kept columns; the lowest rectangles of all layers are pruned.

        The score of a rectangle is its root mean square, so that the smaller rectangles at the right and
        lower edge are comparable with the others.
        """
        widths, elements, scored = {}, {}, {}
        for name, scores in importances.items():
            widths[name] = piece_sizes(scores.shape[1], self.width)
            elements[name] = np.outer(broadcast_sizes(tiles[name].heights), broadcast_sizes(widths[name]))
            means = column_sums(tiles[name].sums(scores, power=2), self.width) / elements[name]
            scored[name] = np.sqrt(means, out=means)
        kept = keep_highest(scored, elements, elements_of_all(importances, sparsity))
        return {name: kept[name].repeat(widths[name], axis=1) for name in kept}

    def map(self, mask: MaskArray) -> TileMap:
        """Return one tile per row of rectangles. Raises BadInput if a rectangle is kept only in part."""
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
