"""`dense-block:8`: a few dense blocks of rows and columns from anywhere (`dense_block`, `guided_block`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune
from prunecast.patterns.dense_block import (
    CLUSTERS,
    FEWEST_ROWS,
    DenseBlocks,
    columns_within,
    prune_dense_block,
    spread_blocks,
)
from prunecast.patterns.guided_block import cluster_counts, prune_guided_block
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, LayerSeconds, MatrixShape, Pattern, parse_sizes
from prunecast.patterns.row_groups import alike_rows
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import tile_map_from_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseBlockPattern(Pattern):
    """At most `clusters` dense blocks of rows and columns from anywhere; `dense-block` alone means 8."""

    family: ClassVar[str] = "dense-block"
    example: ClassVar[str] = "dense-block:8"
    meaning: ClassVar[str] = "at most CLUSTERS dense blocks of rows and columns from anywhere"
    keeps: ClassVar[Kept] = "tiles"

    clusters: int = CLUSTERS
    guided: bool = False
    """The number of clusters, up to `clusters`, and their width follow predicted time."""
    seconds: LayerSeconds | None = field(default=None, compare=False, repr=False)
    """What predicts, for `guided`."""

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """From `8`, `8:guided`, `guided` or nothing."""
        plain = argument.removesuffix("guided").removesuffix(":")
        clusters = parse_sizes(plain, ("clusters",), cls.example)[0] if plain else CLUSTERS
        return cls(clusters=clusters, guided=argument.endswith("guided"))

    @property
    def canonical(self) -> str:
        """With the word where time guides."""
        return f"{self.family}:{self.clusters}" + ":guided" * self.guided

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of clusters that pruning tries."""
        return cluster_counts(self.clusters) if self.guided else (self.clusters,)

    @property
    def needs_times(self) -> bool:
        """Only if guided."""
        return self.guided

    def timed_by(self, seconds: LayerSeconds) -> Self:
        """The same pattern, guided by these predictions."""
        return replace(self, seconds=seconds)

    @property
    def smallest(self) -> MatrixShape:
        """The rows of one block."""
        return MatrixShape(FEWEST_ROWS, 1)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_dense_block` and `prune_guided_block`; layers do not compete.

        Raises BadInput if guided and nothing predicts.
        """
        return {name: self._mask(name, scores, sparsity) for name, scores in importances.items()}

    def _mask(self, name: str, scores: ImportanceArray, sparsity: float) -> MaskArray:
        if not self.guided:
            return prune_dense_block(scores, sparsity, clusters=self.clusters)
        predict = self.seconds
        if predict is None:
            raise BadInput(
                f"{self.canonical} needs a kernel and a GPU, whose times guide it: wanted predict or prune"
            )
        return prune_guided_block(
            scores, sparsity, lambda mask: predict(name, self.map(mask)), most_clusters=self.clusters
        )

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """Blocks as they were lose columns; a layer of which nothing is pruned yet gets blocks.

        Raises BadInput if guided.
        """
        if self.guided:
            raise BadInput(
                f"{self.canonical} cannot prune in steps: wanted a pattern without predicted times"
            )
        return {name: self._narrowed(name, importances[name], sparsity, within[name]) for name in within}

    def _narrowed(self, name: str, scores: ImportanceArray, sparsity: float, within: MaskArray) -> MaskArray:
        if within.all():
            return self.masks({name: scores}, sparsity)[name]
        tiles = self.map(within)
        block_of_row = np.full(tiles.m, -1, dtype=np.int64)
        block_of_row[tiles.row_index] = np.repeat(np.arange(tiles.tile_count), tiles.rows_per_tile)
        columns = within[tiles.row_index[tiles.row_start[:-1]]]
        blocks = DenseBlocks(block_of_row, columns)
        narrower = columns_within(scores, blocks, elements_to_prune(sparsity, scores.size))
        return spread_blocks(blocks, narrower & columns)

    def map(self, mask: MaskArray) -> TileMap:
        """One tile for all rows that keep the same columns; rows that keep nothing are in none."""
        check_mask(mask, self.canonical)
        tiles = sorted((rows for rows in alike_rows(mask) if mask[rows[0]].any()), key=lambda r: int(r[0]))
        if len(tiles) > self.clusters:
            raise BadInput(
                f"mask is not {self.canonical}: its rows keep {len(tiles)} different sets of columns"
            )
        rows = np.concatenate(tiles) if tiles else np.zeros(0, dtype=np.int64)
        row_start = np.cumsum([0, *(tile.size for tile in tiles)])
        return tile_map_from_rows(mask, row_index=rows, row_start=row_start, pattern=self.canonical)
