"""`shuffled-block:64` (Shfl-BW): groups of any rows that share kept columns, equally many in each.

The pattern of Huang et al., "Shfl-BW: Accelerating Deep Neural Network Inference with Tensor-Core Aware
Weight Pruning" (DAC'22): vector-wise after a permutation of the rows, which the kernel undoes as it writes.
Rows are clustered (`row_groups`), improved by exchange, and every group then prunes its
lowest columns as in `vector_wise`. Our own choices: groups keep equally many columns, so that their work is
even; where `height` does not divide M, one group has the rows that are left; where clusters start below
consecutive rows, the exchange starts from these, so shuffling never retains less than vector-wise.

The exchange follows gyro-permutation (arXiv 2407.20496): take one row out of every group and put all back
where they fit best, by an assignment. Rows are worth in a group what they have in the columns that the
rest of the group would keep. An assignment is a permutation of the groups; its cycles touch different
groups, so each is taken or left by itself, and only if the true retained importance rises. It never falls,
and the loop ends.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, elements_to_prune, stated_masks
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, Pattern
from prunecast.patterns.row_groups import cluster_rows, consecutive, group_sums, tiles_of_alike_rows
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import tile_map_of_groups
from prunecast.patterns.vector_wise import check_equal_counts, highest_columns

SEED = 0
"""Seed of the order in which rows are sampled."""
MOST_SWEEPS = 50
"""A sweep samples every row once."""
MOST_ELEMENTS = 3e8
"""Elements that all sweeps together may touch, so that a large matrix takes seconds; there is always one."""
LEAST_GAIN = 2e-4
"""Share of the retained importance that a sweep must add for another to follow."""
SLAB = 64
"""Columns multiplied at once."""
ROUNDING = 1e-12
"""Gains below this share of a group's retained importance are rounding."""


def group_rows(scores: ImportanceArray, sparsity: float, *, height: int) -> CountArray:
    """(M,) int64: group of each row, for masks that retain much at this sparsity.

    A schedule that prunes in steps groups once and hands the groups to `prune_in_groups` at every step:
    the masks are then nested.
    """
    count = _kept_columns(scores, sparsity)
    starts = (
        consecutive(scores.shape[0], height),
        cluster_rows(scores, sparsity, height=height),
    )
    best = max(starts, key=lambda groups: retained_by_groups(group_sums(scores, groups), count).sum())
    return exchange_rows(scores, best, count)


def prune_in_groups(scores: ImportanceArray, sparsity: float, group_of_row: CountArray) -> MaskArray:
    """Mask (M, K) without the lowest columns of each group; of equal sums the lower column is kept."""
    kept = highest_columns(group_sums(scores, group_of_row), _kept_columns(scores, sparsity))
    mask: MaskArray = kept[group_of_row]
    return mask


def _kept_columns(scores: ImportanceArray | MaskArray, sparsity: float) -> int:
    k: int = scores.shape[1]
    return k - elements_to_prune(sparsity, k)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShuffledBlockPattern(Pattern):
    """Groups of `height` rows from anywhere in the matrix."""

    family: ClassVar[str] = "shuffled-block"
    example: ClassVar[str] = "shuffled-block:64"
    meaning: ClassVar[str] = "as vector-wise, on groups of rows from anywhere in the matrix"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    @property
    def seed(self) -> int:
        """Seed of the order in which rows are exchanged between groups."""
        return SEED

    def mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        """Rows grouped, then pruned in these groups; weights that were pruned so keep their mask."""
        stated = stated_masks({"": scores}, sparsity, lambda mask: self._check_counts(mask, sparsity))
        if stated:
            return stated[""]
        return prune_in_groups(scores, sparsity, group_rows(scores, sparsity, height=self.height))

    def _check_counts(self, mask: MaskArray, sparsity: float) -> None:
        """Refuse a mask whose groups do not keep as many columns as this sparsity leaves them."""
        if set(self.map(mask).kept_per_tile.tolist()) != {_kept_columns(mask, sparsity)}:
            raise BadInput(f"{self.canonical} of another sparsity")

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `height` rows that keep the same columns, see `tiles_of_alike_rows`."""
        check_mask(mask, self.canonical)
        tiles = tiles_of_alike_rows(mask, self.height, self.canonical)
        found = tile_map_of_groups(mask, tiles, self.canonical)
        check_equal_counts(found)
        return found


def retained_by_groups(sums: ImportanceArray, count: int) -> npt.NDArray[np.float64]:
    """(groups,) float64: the `count` highest of the sums (groups, K), added up."""
    if count == 0:
        return np.zeros(sums.shape[0])
    lowest = sums.shape[1] - count
    total: npt.NDArray[np.float64] = np.partition(sums, lowest, axis=1)[:, lowest:].sum(axis=1)
    return total


def exchange_rows(scores: ImportanceArray, group_of_row: CountArray, count: int) -> CountArray:
    """(M,) int64: groups of the same sizes that retain at least as much importance.

    Parameters
    ----------
    scores : importance (M, K)
    group_of_row : (M,) where to start; no group is empty
    count : columns that each group keeps

    """
    state = _State.of(scores, group_of_row, count)
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
    """Arrays that an exchange updates in place."""

    members: list[CountArray]
    """Rows of each group."""
    sums: ImportanceArray
    """(groups, K) float64."""
    retained: npt.NDArray[np.float64]
    """(groups,)."""

    @staticmethod
    def of(scores: ImportanceArray, group_of_row: CountArray, count: int) -> "_State":
        members = [np.flatnonzero(group_of_row == group) for group in range(group_of_row.max() + 1)]
        sums = group_sums(scores, group_of_row)
        return _State(members, sums, retained_by_groups(sums, count))


def _exchange(scores: ImportanceArray, state: _State, places: CountArray, count: int) -> None:
    """Reassign the row at places[g] of every group g, as far as that gains."""
    # Slow to import, and only clustering needs it
    from scipy.optimize import linear_sum_assignment

    rows = np.array([members[place] for members, place in zip(state.members, places, strict=True)])
    taken = scores[rows].astype(np.float64)
    rest = state.sums - taken
    worth = _products(taken, _highest_or_tied(rest, count))
    target = linear_sum_assignment(worth, maximize=True)[1]
    source = np.argsort(target)
    after = rest + taken[source]
    retained = retained_by_groups(after, count)
    gain = retained - state.retained
    for cycle in _cycles(target):
        if gain[cycle].sum() > ROUNDING * retained[cycle].sum():
            for group in cycle:
                state.members[group][places[group]] = rows[source[group]]
            state.sums[cycle] = after[cycle]
            state.retained[cycle] = retained[cycle]


def _products(taken: ImportanceArray, kept: MaskArray) -> ImportanceArray:
    """(rows, groups) float64: importance of each row in the columns that each group keeps.

    In slabs so small that BLAS starts no threads: on busy cores they waited for each other ten times as
    long as they worked.
    """
    total = np.zeros((taken.shape[0], kept.shape[0]))
    for first in range(0, taken.shape[1], SLAB):
        slab = slice(first, first + SLAB)
        total += taken[:, slab] @ kept[:, slab].T.astype(np.float64)
    return total


def _highest_or_tied(sums: ImportanceArray, count: int) -> MaskArray:
    """(groups, K) flags of the highest columns and of their ties: the exact choice would take longer."""
    if count == 0:
        return np.zeros(sums.shape, dtype=np.bool_)
    lowest = sums.shape[1] - count
    kept: MaskArray = sums >= np.partition(sums, lowest, axis=1)[:, lowest, None]
    return kept


def _cycles(target: CountArray) -> list[list[int]]:
    """Cycles of a permutation that move something."""
    found: list[list[int]] = []
    seen: set[int] = set()
    for first in range(target.size):
        cycle = []
        while first not in seen:
            seen.add(first)
            cycle.append(first)
            first = int(target[first])
        if len(cycle) > 1:
            found.append(cycle)
    return found
