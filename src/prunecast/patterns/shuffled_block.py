"""`shuffled-block:64` (Shfl-BW): groups of any rows that share kept columns, equal in number for all groups.

This is the pattern of Huang et al., "Shfl-BW: Accelerating Deep Neural Network Inference with Tensor-Core
Aware Weight Pruning" (DAC'22): vector-wise pruning after a permutation of the rows, which the kernel undoes
when it stores C. Rows are clustered (`row_groups`), the groups are improved by exchanges of rows, and every
group then prunes its lowest columns as in `vector_wise`. Our own choices: groups keep equal numbers of
columns, so that their work is balanced; where `height` does not divide M, one group has the remaining rows;
the exchange starts from consecutive rows if these retain more than the clusters, so that shuffling never
retains less than vector-wise pruning.

The exchange follows gyro-permutation (arXiv 2407.20496): remove one row from every group, and solve a linear
assignment problem to put each row into the group where it fits best. The value of a row in a group is its
importance in the columns that the rest of the group would keep. An assignment is a permutation of the groups.
Its cycles involve different groups, so each cycle is accepted or rejected independently, and only if the true
retained importance rises. The retained importance therefore never falls, and the loop ends.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, stated_masks
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.row_groups import cluster_rows, consecutive, tiles_of_alike_rows
from prunecast.patterns.row_tiles import Masks, Scores
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import RowTiles
from prunecast.patterns.vector_wise import (
    VectorWisePattern,
    check_equal_counts,
    columns_to_keep,
    highest_of_each,
)

SEED = 0
"""Seed of the random order in which rows are exchanged."""
MOST_SWEEPS = 50
"""Maximum number of sweeps; a sweep draws every row at least once."""
MOST_ELEMENTS = 3e8
"""Maximum number of elements that all sweeps process, so that even a large matrix needs only seconds; at
least one sweep runs.
"""
LEAST_GAIN = 2e-4
"""Relative gain of retained importance below which no further sweep follows."""
SLAB = 64
"""Columns of one matrix product."""
ROUNDING = 1e-12
"""Relative gain of retained importance that counts as rounding."""


def group_rows(scores: ImportanceArray, sparsity: float, *, height: int) -> CountArray:
    """Return the group of each row, (M,) int64, chosen to retain much importance at this sparsity.

    Gradual pruning can compute the groups once and pass them to `prune_in_groups` at every step. The masks
    are then nested: each is a subset of the one before.
    """
    count = columns_to_keep(scores.shape[1], sparsity)
    starts = (
        consecutive(scores.shape[0], height),
        cluster_rows(scores, sparsity, height=height),
    )
    sums = (RowTiles.of_groups(groups).sums(scores) for groups in starts)
    retained = [retained_by_groups(own, count).sum() for own in sums]
    best = starts[int(np.argmax(retained))]
    return exchange_rows(scores, best, count)


def prune_in_groups(scores: ImportanceArray, sparsity: float, group_of_row: CountArray) -> MaskArray:
    """Return the mask (M, K) in which each group keeps the columns with the highest sums of importance.

    Of equal sums the lower column is kept.
    """
    tiles = RowTiles.of_groups(group_of_row)
    return tiles.spread(highest_of_each(scores, tiles, sparsity), len(scores))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledBlockPattern(VectorWisePattern):
    """Groups of `height` rows from anywhere in the matrix."""

    family: ClassVar[str] = "shuffled-block"
    example: ClassVar[str] = "shuffled-block:64"
    meaning: ClassVar[str] = "as vector-wise, on groups of rows from anywhere in the matrix"

    @property
    def seed(self) -> int:
        """Return the seed of the order in which rows are exchanged between groups."""
        return SEED

    def group(self, importances: Scores, sparsity: float) -> dict[str, RowTiles]:
        """Return layer -> division of its rows into the groups of `group_rows`."""
        return {
            name: RowTiles.of_groups(group_rows(scores, sparsity, height=self.height))
            for name, scores in importances.items()
        }

    def masks(self, importances: Scores, sparsity: float) -> Masks:
        """Return the masks (M, K); layers that already have this pattern and sparsity keep their mask."""

        def check_counts(mask: MaskArray) -> None:
            if set(self.map(mask).kept_per_tile.tolist()) != {columns_to_keep(mask.shape[1], sparsity)}:
                raise BadInput(f"{self.canonical} of another sparsity")

        found: dict[str, MaskArray] = {}
        for name, scores in importances.items():
            own = {name: scores}
            stated = stated_masks(own, sparsity, check_counts)
            found |= stated or VectorWisePattern.masks(self, own, sparsity)
        return found

    def map(self, mask: MaskArray) -> TileMap:
        """Return tiles of `height` rows that keep the same columns, see `tiles_of_alike_rows`."""
        check_mask(mask, self.canonical)
        tiles = tiles_of_alike_rows(mask, self.height, self.canonical)
        found = tiles.map_of_mask(mask, self.canonical)
        check_equal_counts(found)
        return found


def retained_by_groups(sums: ImportanceArray, count: int) -> npt.NDArray[np.float64]:
    """Return the importance that each group retains in its `count` best columns, (groups,) float64.

    `sums` (groups, K) are the sums of importance of the columns of each group.
    """
    if count == 0:
        return np.zeros(sums.shape[0])
    lowest = sums.shape[1] - count
    total: npt.NDArray[np.float64] = np.partition(sums, lowest, axis=1)[:, lowest:].sum(axis=1)
    return total


def exchange_rows(scores: ImportanceArray, group_of_row: CountArray, count: int) -> CountArray:
    """Return the group of each row, (M,) int64, after exchanges that raise the retained importance.

    The sizes of the groups do not change.

    Parameters
    ----------
    scores : importance (M, K)
    group_of_row : (M,) initial groups; no group is empty
    count : columns that each group keeps
    """
    tiles = RowTiles.of_groups(group_of_row)
    sums = tiles.sums(scores)
    state = _State(tiles.members, sums, retained_by_groups(sums, count))
    random = np.random.default_rng(SEED)
    for _ in range(min(MOST_SWEEPS, 1 + int(MOST_ELEMENTS / scores.size))):
        before = state.retained.sum()
        orders = [random.permutation(members.size) for members in state.members]
        for turn in range(max(order.size for order in orders)):
            places = np.array([order[turn % order.size] for order in orders])
            _exchange(scores, state, places, count)
        if state.retained.sum() - before <= LEAST_GAIN * before:
            break
    found = np.empty_like(group_of_row)
    for group, members in enumerate(state.members):
        found[members] = group
    return found


class _State(NamedTuple):
    """State of the exchange of rows; `_exchange` updates its arrays in place."""

    members: list[CountArray]
    """Rows of each group."""
    sums: ImportanceArray
    """Column sums of the importance of each group, (groups, K) float64."""
    retained: npt.NDArray[np.float64]
    """Importance that each group retains, (groups,)."""


def _exchange(scores: ImportanceArray, state: _State, places: CountArray, count: int) -> None:
    """Exchange the rows at places[g] of all groups g where that raises the retained importance."""
    # Slow to import, and only clustering needs it
    from scipy.optimize import linear_sum_assignment

    rows = np.array([members[place] for members, place in zip(state.members, places, strict=True)])
    taken = scores[rows].astype(np.float64)
    rest = state.sums - taken
    worth = _products(taken, _highest_or_tied(rest, count))
    target = linear_sum_assignment(worth, maximize=True)[1]
    cycles = _cycles(target)
    if not cycles:
        return
    source = np.argsort(target)
    moved = np.concatenate(cycles)
    after = rest[moved] + taken[source[moved]]
    retained = retained_by_groups(after, count)
    gain = retained - state.retained[moved]
    stops = np.cumsum([cycle.size for cycle in cycles])
    for cycle, own in zip(cycles, np.split(np.arange(moved.size), stops[:-1]), strict=True):
        if gain[own].sum() > ROUNDING * retained[own].sum():
            for group in cycle:
                state.members[group][places[group]] = rows[source[group]]
            state.sums[cycle] = after[own]
            state.retained[cycle] = retained[own]


def _products(taken: ImportanceArray, kept: MaskArray) -> ImportanceArray:
    """Return the importance of each row in the columns that each group keeps, (rows, groups) float64.

    The products are computed in slabs that are small enough for BLAS to start no threads. On busy cores,
    threads waited ten times as long for each other as they worked.
    """
    groups, k = kept.shape
    whole, flags = k // SLAB * SLAB, kept.astype(np.float64)
    slabs = taken[:, :whole].reshape(groups, -1, SLAB).transpose(1, 0, 2)
    by_slab = slabs @ flags[:, :whole].reshape(groups, -1, SLAB).transpose(1, 2, 0)
    total: ImportanceArray = by_slab.sum(axis=0) + taken[:, whole:] @ flags[:, whole:].T
    return total


def _highest_or_tied(sums: ImportanceArray, count: int) -> MaskArray:
    """Return (groups, K) flags of the `count` highest columns of each group, including all ties.

    Breaking ties would be slower.
    """
    if count == 0:
        return np.zeros(sums.shape, dtype=np.bool_)
    lowest = sums.shape[1] - count
    kept: MaskArray = sums >= np.partition(sums, lowest, axis=1)[:, lowest, None]
    return kept


def _cycles(target: CountArray) -> list[CountArray]:
    """Return the cycles of a permutation that have more than one element."""
    found: list[CountArray] = []
    onward = {place: to for place, to in enumerate(target.tolist()) if place != to}
    while onward:
        place = next(iter(onward))
        cycle = []
        while place in onward:
            cycle.append(place)
            place = onward.pop(place)
        found.append(np.array(cycle))
    return found
