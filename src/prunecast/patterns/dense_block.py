"""`dense-block:8`: a few dense blocks, each of rows from anywhere that share most of their columns.

Performance-aware pruning (Rumi et al., PACT'20) starts from an unstructured mask, clusters the filters that
share columns, grows a dense block in each cluster, and re-prunes what is left over. The steps here are those
of the authors' code as public in Structure-LTH (arXiv 2202.04736): up to 8 clusters, columns in order of how
many rows keep them, the first width that exceeds 1.5 times what any row would leave over, no block of 16
rows or fewer. Our own choices:

* A deterministic clustering into equal parts (`row_groups`) takes the place of hMETIS.
* Blocks keep as much as the sparsity allows: grown columns go last, others come in where room is left, each
  by its mean importance. The published way has whatever sparsity the growth leads to (`grow_blocks`).
* How much is left over, and kept as a sparse remainder, is up to a cost function (`cheaper_parts`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, MatrixShape, Pattern, parse_sizes
from prunecast.patterns.row_groups import alike_rows, cluster_signatures, group_sums
from prunecast.patterns.statistics import retained_importance
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import tile_map_from_rows
from prunecast.patterns.unstructured import prune_unstructured

CLUSTERS = 8
GROWTH = 1.5
"""A block is wide enough once it has this many times what any of its rows leaves over."""

FEWEST_ROWS = 17
"""Rows of the smallest block that is worth a launch."""

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the kept elements in blocks that `cheaper_parts` tries; at 1 all leftovers are re-pruned."""


class DenseBlocks(NamedTuple):
    """Blocks that have grown in a mask (M, K)."""

    block_of_row: CountArray
    """(M,): -1 for rows in no block."""
    columns: MaskArray
    """(blocks, K)."""


class BlockParts(NamedTuple):
    """What is kept, in two parts without a common element."""

    tiles: TileMap
    rest: ElementMap


class _Choice(NamedTuple):
    """Retained importance per cost, and what has it."""

    worth: float
    parts: BlockParts


PartsCost = Callable[[BlockParts], float]
"""Predicted time, or any other cost above 0, of the two parts together."""


def grow_blocks(
    mask: MaskArray, *, clusters: int = CLUSTERS, growth: float = GROWTH, fewest_rows: int = FEWEST_ROWS
) -> DenseBlocks:
    """Dense blocks of an unstructured mask; rows that keep nothing are in none.

    There are fewer than `clusters` where rows do not suffice for blocks of `fewest_rows`.
    """
    block_of_row = np.full(mask.shape[0], -1, dtype=np.int64)
    rows = np.flatnonzero(np.logical_or.reduce(mask, axis=1))
    count = min(clusters, rows.size // fewest_rows)
    columns = np.zeros((count, mask.shape[1]), dtype=np.bool_)
    if count:
        sizes = np.diff(np.arange(count + 1) * rows.size // count)
        block_of_row[rows] = cluster_signatures(mask[rows].astype(np.float32), sizes)
    for block in range(count):
        inside = mask[block_of_row == block]
        order = np.argsort(-np.count_nonzero(inside, axis=0), kind="stable")
        columns[block, order[: grown_width(inside[:, order], growth)]] = True
    return DenseBlocks(block_of_row, columns)


def grown_width(rows: MaskArray, growth: float = GROWTH) -> int:
    """Fewest leading columns of `rows`, from 1, that exceed `growth` times what any row keeps behind them."""
    covered = np.cumsum(rows, axis=1, dtype=np.int32)
    left_over = (covered[:, -1:] - covered).max(axis=0)
    return int(np.argmax(np.arange(1, rows.shape[1] + 1) > growth * left_over)) + 1


def prune_dense_block(
    scores: ImportanceArray,
    sparsity: float,
    *,
    clusters: int = CLUSTERS,
    fewest_rows: int = FEWEST_ROWS,
) -> MaskArray:
    """Mask (M, K) of dense blocks only: leftovers are re-pruned."""
    blocks = _wanted_blocks(scores, sparsity, clusters, fewest_rows)
    return _spread(blocks, _within(scores, blocks, elements_to_prune(sparsity, scores.size)))


def cheaper_parts(
    scores: ImportanceArray,
    sparsity: float,
    cost: PartsCost,
    *,
    clusters: int = CLUSTERS,
    fewest_rows: int = FEWEST_ROWS,
) -> BlockParts:
    """The mix of dense blocks and sparse remainder that retains the most importance per cost.

    All choices have the sparsity; they differ in the share of the kept elements that lies in blocks
    (`SHARES`). The most important elements outside of the blocks are the remainder.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity, clusters, fewest_rows : as in `prune_dense_block`
    cost : see `PartsCost`; called once for each share
    """
    blocks = _wanted_blocks(scores, sparsity, clusters, fewest_rows)
    to_prune = elements_to_prune(sparsity, scores.size)
    pattern = DenseBlockPattern(clusters=clusters).canonical
    choices = []
    for share in SHARES:
        left_over = int((1.0 - share) * (scores.size - to_prune))
        tiled = _spread(blocks, _within(scores, blocks, to_prune + left_over))
        rest = _best_outside(scores, tiled, to_prune if left_over else scores.size)
        parts = _parts(blocks, tiled, rest, pattern)
        choices.append(_Choice(retained_importance(scores, tiled | rest) / cost(parts), parts))
    return max(choices, key=lambda choice: choice.worth).parts


def _wanted_blocks(scores: ImportanceArray, sparsity: float, clusters: int, fewest_rows: int) -> DenseBlocks:
    wanted = prune_unstructured({"": scores}, sparsity)[""]
    return grow_blocks(wanted, clusters=clusters, fewest_rows=fewest_rows)


def _within(scores: ImportanceArray, blocks: DenseBlocks, to_prune: int) -> MaskArray:
    """(blocks, K) flags of the columns that are left once `to_prune` elements of the matrix are gone."""
    if blocks.columns.shape[0] == 0:
        return blocks.columns
    inside = blocks.block_of_row >= 0
    rows = np.bincount(blocks.block_of_row[inside])[:, None]
    means = group_sums(scores[inside], blocks.block_of_row[inside]) / rows
    outside = scores.size - int(rows.sum()) * scores.shape[1]
    return keep_highest({"": _ranks(means, blocks.columns)}, {"": rows}, to_prune - outside)[""]


def _ranks(means: ImportanceArray, grown: MaskArray) -> ImportanceArray:
    """Place of each column of a block: grown ones above the others, then by mean, lower places first."""
    backwards = np.arange(means.size)[::-1]
    order = np.lexsort((backwards, means.ravel(), grown.ravel()))
    ranks = np.empty(means.size)
    ranks[order] = np.arange(means.size)
    return ranks.reshape(means.shape)


def _spread(blocks: DenseBlocks, columns: MaskArray) -> MaskArray:
    mask = np.zeros((blocks.block_of_row.size, columns.shape[1]), dtype=np.bool_)
    inside = blocks.block_of_row >= 0
    mask[inside] = columns[blocks.block_of_row[inside]]
    return mask


def _best_outside(scores: ImportanceArray, taken: MaskArray, to_prune: int) -> MaskArray:
    """Mask of the highest elements that are not taken; `to_prune` elements at most stay out of both."""
    free = scores[~taken]
    mask = np.zeros(scores.shape, dtype=np.bool_)
    if free.size:
        one_each = {"": np.ones(1, dtype=np.int64)}
        mask[~taken] = keep_highest({"": free}, one_each, min(to_prune, free.size))[""]
    return mask


def _parts(blocks: DenseBlocks, tiled: MaskArray, rest: MaskArray, pattern: str) -> BlockParts:
    order = np.argsort(blocks.block_of_row, kind="stable")
    rows = order[np.count_nonzero(blocks.block_of_row < 0) :]
    sizes = np.bincount(blocks.block_of_row[rows]) if rows.size else np.zeros(0, dtype=np.int64)
    tiles = tile_map_from_rows(
        tiled, row_index=rows, row_start=np.append(0, np.cumsum(sizes)), pattern=pattern
    )
    return BlockParts(tiles, element_map_from_mask(rest, pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseBlockPattern(Pattern):
    """At most `clusters` dense blocks of rows and columns from anywhere; `dense-block` alone means 8."""

    family: ClassVar[str] = "dense-block"
    example: ClassVar[str] = "dense-block:8"
    meaning: ClassVar[str] = "at most CLUSTERS dense blocks of rows and columns from anywhere"
    keeps: ClassVar[Kept] = "tiles"

    clusters: int = CLUSTERS

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """From `8`, or nothing."""
        return cls(clusters=parse_sizes(argument, ("clusters",), cls.example)[0]) if argument else cls()

    @property
    def smallest(self) -> MatrixShape:
        """The rows of one block."""
        return MatrixShape(FEWEST_ROWS, 1)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_dense_block`; layers do not compete."""
        return {
            name: prune_dense_block(scores, sparsity, clusters=self.clusters)
            for name, scores in importances.items()
        }

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """Blocks as they were lose columns; a layer of which nothing is pruned yet gets blocks."""
        return {name: self._narrowed(name, importances[name], sparsity, within[name]) for name in within}

    def _narrowed(self, name: str, scores: ImportanceArray, sparsity: float, within: MaskArray) -> MaskArray:
        if within.all():
            return self.masks({name: scores}, sparsity)[name]
        tiles = self.map(within)
        block_of_row = np.full(tiles.m, -1, dtype=np.int64)
        block_of_row[tiles.row_index] = np.repeat(np.arange(tiles.tile_count), tiles.rows_per_tile)
        columns = within[tiles.row_index[tiles.row_start[:-1]]]
        blocks = DenseBlocks(block_of_row, columns)
        narrower = _within(scores, blocks, elements_to_prune(sparsity, scores.size))
        return _spread(blocks, narrower & columns)

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
