"""`dense-block:8`: a few dense blocks, each of rows from anywhere that share most of their columns.

Performance-aware pruning (Rumi et al., PACT'20) starts from an unstructured mask, clusters the filters that
share columns, grows a dense block in each cluster, and re-prunes what is left over. The steps here are those
of the authors' code as public in Structure-LTH (arXiv 2202.04736): up to 8 clusters, columns in order of how
many rows keep them, the first width that exceeds 1.5 times what any row would leave over, no block of 16
rows or fewer. Our own choices:

* A deterministic clustering into equal parts (`row_groups`) takes the place of hMETIS.
* Blocks keep as much as the sparsity allows: grown columns go last, others come in where room is left, each
  by its mean importance. The published way has whatever sparsity the growth leads to (`grow_blocks`).
* How many clusters, how wide, and how much is left over and kept as a sparse remainder may be up to predicted
  time (`dense_block_pattern`).
"""

from typing import NamedTuple

import numpy as np

from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.plain import prune_unstructured
from prunecast.patterns.row_groups import cluster_signatures, group_sums
from prunecast.patterns.tile_map import MaskArray

CLUSTERS = 8
GROWTH = 1.5
"""A block is wide enough once it has this many times what any of its rows leaves over."""

FEWEST_ROWS = 17
"""Rows of the smallest block that is worth a launch."""


class DenseBlocks(NamedTuple):
    """Blocks that have grown in a mask (M, K)."""

    block_of_row: CountArray
    """(M,): -1 for rows in no block."""
    columns: MaskArray
    """(blocks, K)."""


def grow_blocks(mask: MaskArray, *, clusters: int = CLUSTERS, fewest_rows: int = FEWEST_ROWS) -> DenseBlocks:
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
        columns[block, order[: _grown_width(inside[:, order])]] = True
    return DenseBlocks(block_of_row, columns)


def _grown_width(rows: MaskArray) -> int:
    """Fewest leading columns of `rows`, from 1, that exceed `GROWTH` times what any row keeps behind them."""
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
    """Mask (M, K) of dense blocks only: leftovers are re-pruned."""
    blocks = wanted_blocks(scores, sparsity, clusters, fewest_rows)
    return spread_blocks(blocks, columns_within(scores, blocks, elements_to_prune(sparsity, scores.size)))


def wanted_blocks(scores: ImportanceArray, sparsity: float, clusters: int, fewest_rows: int) -> DenseBlocks:
    """Blocks that grow in an unstructured mask of this sparsity."""
    wanted = prune_unstructured({"": scores}, sparsity)[""]
    return grow_blocks(wanted, clusters=clusters, fewest_rows=fewest_rows)


def columns_within(scores: ImportanceArray, blocks: DenseBlocks, to_prune: int) -> MaskArray:
    """(blocks, K) flags of the columns that are left once `to_prune` elements of the matrix are gone."""
    if blocks.columns.shape[0] == 0:
        return blocks.columns
    rows = _heights(blocks)[:, None]
    outside = scores.size - int(rows.sum()) * scores.shape[1]
    return keep_highest({"": column_ranks(scores, blocks)}, {"": rows}, to_prune - outside)[""]


def column_ranks(scores: ImportanceArray, blocks: DenseBlocks) -> ImportanceArray:
    """Place of each column of a block: grown ones above the others, then by mean, lower places first."""
    if blocks.columns.shape[0] == 0:
        return np.zeros(blocks.columns.shape)
    inside = blocks.block_of_row >= 0
    means = group_sums(scores[inside], blocks.block_of_row[inside]) / _heights(blocks)[:, None]
    backwards = np.arange(means.size)[::-1]
    order = np.lexsort((backwards, means.ravel(), blocks.columns.ravel()))
    ranks = np.empty(means.size)
    ranks[order] = np.arange(means.size)
    return ranks.reshape(means.shape)


def _heights(blocks: DenseBlocks) -> CountArray:
    """(blocks,): rows."""
    return np.bincount(blocks.block_of_row[blocks.block_of_row >= 0])


def spread_blocks(blocks: DenseBlocks, columns: MaskArray) -> MaskArray:
    """Mask (M, K) of blocks that keep columns (blocks, K)."""
    mask = np.zeros((blocks.block_of_row.size, columns.shape[1]), dtype=np.bool_)
    inside = blocks.block_of_row >= 0
    mask[inside] = columns[blocks.block_of_row[inside]]
    return mask
