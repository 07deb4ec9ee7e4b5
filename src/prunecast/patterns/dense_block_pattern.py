"""`dense-block:8`: a few dense blocks of rows and columns from anywhere (`dense_block`), guided by time.

The performance-aware step of Rumi et al. (PACT'20) removes remaining elements whose time exceeds their
worth; the sparsity results from it. Here there are two variants. Without a sparse remainder, the number and
width of blocks are searched for the least predicted time, and the blocks retain at least as much importance
as unguided blocks (`prune_guided_block`). With a sparse remainder, the number of blocks and their fraction of
the kept elements maximize the retained importance per predicted second (`cheaper_parts`). The caller passes
the function that predicts the time, since this package contains nothing about GPUs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import elements_to_prune
from prunecast.patterns.dense_block import (
    CLUSTERS,
    FEWEST_ROWS,
    DenseBlocks,
    column_ranks,
    columns_within,
    prune_dense_block,
    wanted_blocks,
)
from prunecast.patterns.element_map import element_map_from_mask, retained_importance, retained_sum
from prunecast.patterns.guided_tile import ROUNDING, TileSeconds, fastest_confirmed
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import GuidedPattern, Kept, MatrixShape
from prunecast.patterns.row_groups import alike_rows
from prunecast.patterns.tile_element import TwoParts, highest_outside
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import RowTiles

SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Fractions of the kept elements in blocks that `cheaper_parts` tries; at 1 there is no remainder."""

STEPS = (1, 16, 64)
"""Column counts of blocks are rounded up to multiples of these: 1, the K of a tensor-core instruction, and
the k-step of most kernels.
"""


PartsCost = Callable[[TwoParts], float]
"""Function that returns the predicted time, or any other positive cost, of dense blocks plus remainder."""


def cluster_counts(most: int) -> tuple[int, ...]:
    """Return the numbers of clusters to try: the powers of two below `most`, and `most`."""
    return (*(2**power for power in range((most - 1).bit_length())), most)


def prune_guided_block(
    scores: ImportanceArray,
    sparsity: float,
    seconds: TileSeconds,
    *,
    most_clusters: int = CLUSTERS,
    fewest_rows: int = FEWEST_ROWS,
    confirm: TileSeconds | None = None,
) -> MaskArray:
    """Return the mask (M, K) of the dense blocks with the least predicted time that retain enough importance.

    The target is the importance that `prune_dense_block` with `most_clusters` retains. For each number of
    clusters of `cluster_counts`, blocks get as many columns as reach the target, rounded up to whole steps
    (`STEPS`). The sparsity of the result follows from this.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity : least fraction of elements that the unguided blocks of the target prune
    seconds : function that predicts the seconds of a layer from its tiles
    most_clusters : maximum number of blocks
    fewest_rows : least number of rows of a block
    confirm : second prediction, which can reject layouts, see `fastest_confirmed`; None to skip this check
    """
    pattern = f"dense-block:{most_clusters}"
    counts, m = cluster_counts(most_clusters), len(scores)
    grown = [wanted_blocks(scores, sparsity, clusters, fewest_rows) for clusters in counts]
    kept = columns_within(scores, grown[-1], elements_to_prune(sparsity, scores.size))
    own = grown[-1].tiles.map_of_used(kept, m, pattern)
    if own.kept_count == 0:
        return own.mask()
    enough = retained_sum(scores, own.mask()) * (1.0 - ROUNDING)
    choices = ((blocks.tiles, kept) for blocks in grown for kept in _sufficient(scores, blocks, enough))
    others = (tiles.map_of_used(kept, m, pattern) for tiles, kept in choices)
    return fastest_confirmed(own, others, seconds, confirm).mask()


def _sufficient(scores: ImportanceArray, blocks: DenseBlocks, enough: float) -> Iterator[MaskArray]:
    """Yield flags (blocks, K) of the highest-ranked columns that retain at least `enough` importance.

    Each entry of `STEPS` gives one array, in which the column count of each block is rounded up to a multiple
    of the entry. Nothing is yielded if even all columns retain less.
    """
    ranks = column_ranks(scores, blocks)
    order = np.argsort(-ranks, axis=None)
    retained = np.cumsum(blocks.tiles.sums(scores).ravel()[order])
    if retained.size == 0 or retained[-1] < enough:
        return
    block_of_best = order[: np.searchsorted(retained, enough) + 1] // ranks.shape[1]
    widths = np.bincount(block_of_best, minlength=len(ranks))[:, None]
    places = np.argsort(np.argsort(-ranks, axis=1), axis=1)
    for step in STEPS:
        yield places < -(-widths // step) * step


def cheaper_parts(
    scores: ImportanceArray,
    sparsity: float,
    cost: PartsCost,
    *,
    counts: Sequence[int] = (CLUSTERS,),
    fewest_rows: int = FEWEST_ROWS,
) -> TwoParts:
    """Return the mix of dense blocks and sparse remainder that retains the most importance per cost.

    All candidates have the same sparsity. They differ in the number of clusters and in the fraction of the
    kept elements that is in blocks (`SHARES`). The most important elements outside of the blocks are the
    remainder.

    Parameters
    ----------
    scores : importance (M, K)
    sparsity, fewest_rows : as in `prune_dense_block`
    cost : see `PartsCost`; called once for each number of clusters and fraction
    counts : numbers of clusters to try
    """

    def worth(parts: TwoParts) -> float:
        return retained_importance(scores, parts.tiles.mask() | parts.rest.mask()) / cost(parts)

    mixes = (_mixes(scores, sparsity, clusters, fewest_rows) for clusters in counts)
    return max(chain.from_iterable(mixes), key=worth)


def _mixes(scores: ImportanceArray, sparsity: float, clusters: int, fewest_rows: int) -> Iterator[TwoParts]:
    """Yield blocks and remainder for each fraction (`SHARES`) of the kept elements that is in blocks."""
    blocks = wanted_blocks(scores, sparsity, clusters, fewest_rows)
    to_prune = elements_to_prune(sparsity, scores.size)
    for share in SHARES:
        left_over = int((1.0 - share) * (scores.size - to_prune))
        pattern = f"dense-block:{clusters}"
        kept = columns_within(scores, blocks, to_prune + left_over)
        tiles = blocks.tiles.tile_map(kept, len(scores), pattern)
        rest = highest_outside({"": scores}, {"": tiles.mask()}, to_prune if left_over else scores.size)[""]
        yield TwoParts(tiles, element_map_from_mask(rest, pattern))


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseBlockPattern(GuidedPattern):
    """Up to `clusters` dense blocks of any rows and columns; the pattern string `dense-block` means 8 blocks.

    If guided, the number of clusters, up to `clusters`, and their width are chosen by predicted time. Blocks
    then retain at least as much importance as without guidance.
    """

    family: ClassVar[str] = "dense-block"
    example: ClassVar[str] = "dense-block:8"
    meaning: ClassVar[str] = "at most CLUSTERS dense blocks of rows and columns from anywhere"
    keeps: ClassVar[Kept] = "tiles"

    clusters: int = CLUSTERS

    @property
    def canonical(self) -> str:
        """Return the pattern string; it ends in `guided` if predicted time guides the pattern."""
        return f"{self.family}:{self.clusters}" + ":guided" * self.guided

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the numbers of clusters that pruning tries."""
        return cluster_counts(self.clusters) if self.guided else (self.clusters,)

    @property
    def smallest(self) -> MatrixShape:
        """Return the smallest matrix that can be pruned: the rows of the smallest block, one column."""
        return MatrixShape(FEWEST_ROWS, 1)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Return layer -> mask (M, K), from `prune_dense_block` or, if guided, from `prune_guided_block`.

        Raises BadInput if the pattern is guided but has no function that predicts times.
        """
        return {name: self._mask(name, scores, sparsity) for name, scores in importances.items()}

    def _mask(self, name: str, scores: ImportanceArray, sparsity: float) -> MaskArray:
        if not self.guided:
            return prune_dense_block(scores, sparsity, clusters=self.clusters)
        timed, confirm = partial(self.told_times(), name), self.confirm and partial(self.confirm, name)
        return prune_guided_block(scores, sparsity, timed, most_clusters=self.clusters, confirm=confirm)

    def map(self, mask: MaskArray) -> TileMap:
        """Return one tile per set of rows that keep the same columns; rows that keep nothing are in no tile.

        Raises BadInput if there are more than `clusters` such sets.
        """
        check_mask(mask, self.canonical)
        tiles = [rows for rows in alike_rows(mask) if mask[rows[0]].any()]
        if len(tiles) > self.clusters:
            raise BadInput(
                f"mask is not {self.canonical}: its rows keep {len(tiles)} different sets of columns"
            )
        return RowTiles.of_members(tiles).by_first_row().map_of_mask(mask, self.canonical)
