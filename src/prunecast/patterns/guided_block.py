"""Dense blocks chosen by predicted time: how many clusters, how wide, and how much is left over.

The performance-aware step of Rumi et al. (PACT'20) removes leftovers that cost more time than they are worth,
at whatever sparsity that leads to. Worth is here the retained importance per predicted second, of a function
that the caller hands in, since no GPU is known here. Alone, blocks are guided in their number and width
(`prune_guided_block`); with a sparse remainder in their number and its share (`cheaper_parts`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from prunecast.patterns.cut import elements_to_prune, keep_highest
from prunecast.patterns.dense_block import (
    CLUSTERS,
    FEWEST_ROWS,
    DenseBlocks,
    column_ranks,
    columns_within,
    spread_blocks,
    wanted_blocks,
)
from prunecast.patterns.element_map import ElementMap, element_map_from_mask
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.statistics import retained_importance
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_rows

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Shares of the kept elements in blocks that `cheaper_parts` tries; at 1 all leftovers are re-pruned."""

STEPS = (1, 16, 64)
"""Steps of columns to which blocks are narrowed: of the tensor cores, and of most kernels' loops."""


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


def cluster_counts(most: int) -> tuple[int, ...]:
    """Numbers of clusters that are tried: powers of two below `most`, and it."""
    return (*(2**power for power in range((most - 1).bit_length())), most)


def prune_guided_block(
    scores: ImportanceArray,
    sparsity: float,
    seconds: Callable[[MaskArray], float],
    *,
    most_clusters: int = CLUSTERS,
    fewest_rows: int = FEWEST_ROWS,
) -> MaskArray:
    """Mask (M, K) of dense blocks that retain the most importance per second.

    Blocks of each of `cluster_counts` are as wide as the sparsity allows, and then narrowed to whole steps:
    weights go where that gains more speed than importance.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity : that is reached at least
    seconds : predicts what keeps a mask
    """
    masks = [
        mask
        for clusters in cluster_counts(most_clusters)
        for mask in _narrowed(scores, sparsity, wanted_blocks(scores, sparsity, clusters, fewest_rows))
    ]
    kept = [mask for mask in masks if mask.any()]
    if not kept:
        return masks[0]
    return max(kept, key=lambda mask: retained_importance(scores, mask) / seconds(mask))


def _narrowed(scores: ImportanceArray, sparsity: float, blocks: DenseBlocks) -> Iterator[MaskArray]:
    columns = columns_within(scores, blocks, elements_to_prune(sparsity, scores.size))
    ranks = column_ranks(scores, blocks)
    places = np.argsort(np.argsort(-np.where(columns, ranks, -1.0), axis=1), axis=1)
    counts = np.count_nonzero(columns, axis=1)[:, None]
    for step in STEPS:
        yield spread_blocks(blocks, places < counts // step * step)


def cheaper_parts(
    scores: ImportanceArray,
    sparsity: float,
    cost: PartsCost,
    *,
    counts: Sequence[int] = (CLUSTERS,),
    fewest_rows: int = FEWEST_ROWS,
) -> BlockParts:
    """The mix of dense blocks and sparse remainder that retains the most importance per cost.

    All choices have the sparsity; they differ in the number of clusters and in the share of the kept elements
    that lies in blocks (`SHARES`). The most important elements outside of the blocks are the remainder.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity, fewest_rows : as in `prune_dense_block`
    cost : see `PartsCost`; called once for each number and share
    counts : numbers of clusters
    """
    found = [
        choice for clusters in counts for choice in _choices(scores, sparsity, cost, clusters, fewest_rows)
    ]
    return max(found, key=lambda choice: choice.worth).parts


def _choices(
    scores: ImportanceArray, sparsity: float, cost: PartsCost, clusters: int, fewest_rows: int
) -> Iterator[_Choice]:
    """Every share of the kept elements in blocks of so many clusters."""
    blocks = wanted_blocks(scores, sparsity, clusters, fewest_rows)
    to_prune = elements_to_prune(sparsity, scores.size)
    for share in SHARES:
        left_over = int((1.0 - share) * (scores.size - to_prune))
        tiled = spread_blocks(blocks, columns_within(scores, blocks, to_prune + left_over))
        rest = _best_outside(scores, tiled, to_prune if left_over else scores.size)
        parts = _parts(blocks, tiled, rest, f"dense-block:{clusters}")
        yield _Choice(retained_importance(scores, tiled | rest) / cost(parts), parts)


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
