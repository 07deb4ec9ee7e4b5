"""`dense-block:8`: a few dense blocks. A block consists of any rows that share most of their columns.

Performance-aware pruning (Rumi et al., PACT'20) starts from an unstructured mask, clusters the filters that
share columns, grows a dense block in each cluster, and re-prunes the remaining elements. The steps here are
those of the authors' code in Structure-LTH (arXiv 2202.04736). There are up to 8 clusters. A block gets
columns in the order of how many of its rows keep them. It stops at the first width that exceeds 1.5 times the
number of kept elements that any of its rows has outside of the block. No block has 16 rows or fewer. Our own
choices:

* A deterministic clustering into equal parts (`row_groups`) replaces hMETIS.
* The sparsity is given. Columns that growth has found are pruned last, and other columns are added by their
  mean importance while the sparsity allows it. In the published method, the sparsity results from growth
  (`grow_blocks`).
* The number of clusters, their width, and the size of a sparse remainder may be chosen by predicted time
  (`dense_block_pattern`).
"""

from typing import NamedTuple

import numpy as np

from prunecast.patterns.cut import elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.plain import prune_unstructured
from prunecast.patterns.row_groups import cluster_signatures
from prunecast.patterns.tile_map import MaskArray
from prunecast.patterns.tiling import RowTiles

CLUSTERS = 8
GROWTH = 1.5
"""A block stops growing when its width exceeds this factor times the largest number of elements that any of
its rows keeps outside of the block."""

FEWEST_ROWS = 17
"""Rows of the smallest block for which a launch is worthwhile."""


class DenseBlocks(NamedTuple):
    """Dense blocks found in an unstructured mask (M, K): clusters of similar rows with their common columns.

    The columns of a block are found by growth: columns are added to it in the order of how many of its rows
    keep them (`grow_blocks`).
    """

    tiles: RowTiles
    """Rows of each block; the other rows are in no block."""
    columns: MaskArray
    """(blocks, K) flags of the columns of each block."""


def grow_blocks(mask: MaskArray, *, clusters: int = CLUSTERS, fewest_rows: int = FEWEST_ROWS) -> DenseBlocks:
    """Return dense blocks in an unstructured mask; rows that keep nothing are in no block.

    Parameters
    ----------
    mask : (M, K) bool
    clusters : number of blocks, fewer if the rows do not suffice for `fewest_rows` per block
    fewest_rows : least number of rows of a block
    """
    block_of_row = np.full(mask.shape[0], -1, dtype=np.int64)
    rows = np.flatnonzero(np.logical_or.reduce(mask, axis=1))
    count = min(clusters, rows.size // fewest_rows)
    columns = np.zeros((count, mask.shape[1]), dtype=np.bool_)
    if count:
        sizes = np.diff(np.arange(count + 1) * rows.size // count)
        block_of_row[rows] = cluster_signatures(mask[rows].astype(np.float32), sizes)
    tiles = RowTiles.of_groups(block_of_row)
    for block in range(count):
        inside = mask[block_of_row == block]
        order = np.argsort(-np.count_nonzero(inside, axis=0), kind="stable")
        columns[block, order[: _grown_width(inside[:, order])]] = True
    return DenseBlocks(tiles, columns)


def _grown_width(rows: MaskArray) -> int:
    """Return the least width w >= 1 above `GROWTH` times the most elements that a row keeps after column w.

    `rows` is the mask (rows, K) of a block, with columns in the order in which they are added to the block.
    """
    covered = np.cumsum(rows, axis=1, dtype=np.int32)
    left_over = (covered[:, -1:] - covered).max(axis=0)
    return int(np.argmax(np.arange(1, rows.shape[1] + 1) > GROWTH * left_over)) + 1


def prune_dense_block(
    scores: ImportanceArray,
    sparsity: float,
    *,
    clusters: int = CLUSTERS,
    fewest_rows: int = FEWEST_ROWS,
) -> MaskArray:
    """Return the mask (M, K) of dense blocks only; elements outside of the blocks are pruned."""
    blocks = wanted_blocks(scores, sparsity, clusters, fewest_rows)
    kept = columns_within(scores, blocks, elements_to_prune(sparsity, scores.size))
    return blocks.tiles.spread(kept, len(scores))


def wanted_blocks(scores: ImportanceArray, sparsity: float, clusters: int, fewest_rows: int) -> DenseBlocks:
    """Return the blocks of `grow_blocks` for the unstructured mask of this sparsity."""
    wanted = prune_unstructured({"": scores}, sparsity)[""]
    return grow_blocks(wanted, clusters=clusters, fewest_rows=fewest_rows)


def columns_within(scores: ImportanceArray, blocks: DenseBlocks, to_prune: int) -> MaskArray:
    """Return (blocks, K) flags of the columns that remain after pruning `to_prune` elements of the matrix.

    All elements in rows outside of the blocks count as pruned.
    """
    if blocks.columns.shape[0] == 0:
        return blocks.columns
    rows = blocks.tiles.heights[:, None]
    outside = scores.size - int(rows.sum()) * scores.shape[1]
    return keep_highest({"": column_ranks(scores, blocks)}, {"": rows}, to_prune - outside)[""]


def column_ranks(scores: ImportanceArray, blocks: DenseBlocks) -> ImportanceArray:
    """Return the rank of each column of each block, (blocks, K) float64; higher ranks are kept first.

    Columns of `blocks.columns` rank above all others; within both classes, columns rank by mean importance.
    Of equal means the earlier column ranks higher.
    """
    means = blocks.tiles.sums(scores) / blocks.tiles.heights[:, None]
    backwards = np.arange(means.size)[::-1]
    order = np.lexsort((backwards, means.ravel(), blocks.columns.ravel()))
    ranks = np.empty(means.size)
    ranks[order] = np.arange(means.size)
    return ranks.reshape(means.shape)
