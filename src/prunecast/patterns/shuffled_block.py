"""`shuffled-block:64` (Shfl-BW): groups of any rows that share kept columns, equally many in each.

The pattern of Huang et al., "Shfl-BW: Accelerating Deep Neural Network Inference with Tensor-Core Aware
Weight Pruning" (DAC'22): vector-wise after a permutation of the rows, which the kernel undoes as it writes.
Rows are clustered (`row_groups`), improved by exchange (`row_exchange`), and every group then prunes its
lowest columns as in `vector_wise`. Our own choices: groups keep equally many columns, so that their work is
even; where `height` does not divide M, one group has the rows that are left; where clusters start below
consecutive rows, the exchange starts from these, so shuffling never retains less than vector-wise.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, elements_to_prune
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, MatrixShape, Pattern
from prunecast.patterns.row_exchange import exchange_rows, retained_by_groups
from prunecast.patterns.row_groups import cluster_rows, consecutive, group_sums, tiles_of_alike_rows
from prunecast.patterns.stated import stated_masks
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tiling import tile_map_from_rows
from prunecast.patterns.vector_wise import check_equal_counts, highest_columns
from prunecast.patterns.within import importance_within

__all__ = ["SEED", "ShuffledBlockPattern", "group_rows", "prune_in_groups", "prune_shuffled_block"]

SEED = 0
"""Where nothing else is asked for."""


def prune_shuffled_block(
    scores: ImportanceArray, sparsity: float, *, height: int, seed: int = SEED
) -> MaskArray:
    """Mask (M, K): rows grouped by `group_rows`, then `prune_in_groups`."""
    groups = group_rows(scores, sparsity, height=height, seed=seed)
    return prune_in_groups(scores, sparsity, groups)


def group_rows(scores: ImportanceArray, sparsity: float, *, height: int, seed: int = SEED) -> CountArray:
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
    return exchange_rows(scores, best, count, seed=seed)


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
    def smallest(self) -> MatrixShape:
        """One whole group."""
        return MatrixShape(self.height, 1)

    @property
    def seed(self) -> int:
        """Seed of the order in which rows are exchanged between groups."""
        return SEED

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_shuffled_block`; layers do not compete."""
        return {name: self._mask(scores, sparsity) for name, scores in importances.items()}

    def _mask(self, scores: ImportanceArray, sparsity: float) -> MaskArray:
        stated = stated_masks({"layer": scores}, sparsity, lambda mask: self._check_counts(mask, sparsity))
        return stated["layer"] if stated else prune_shuffled_block(scores, sparsity, height=self.height)

    def _check_counts(self, mask: MaskArray, sparsity: float) -> None:
        """Refuse a mask whose groups do not keep as many columns as this sparsity leaves them."""
        if set(self.map(mask).kept_per_tile.tolist()) != {_kept_columns(mask, sparsity)}:
            raise BadInput(f"{self.canonical} of another sparsity")

    def masks_within(
        self, importances: Mapping[str, ImportanceArray], sparsity: float, within: Mapping[str, MaskArray]
    ) -> dict[str, MaskArray]:
        """Masks inside what earlier masks keep, with their groups of rows; a layer of which nothing is pruned
        yet is grouped first.

        Where a group may keep fewer columns than the sparsity says, all groups keep as few as it.
        """
        return {name: self._regrouped(name, importances[name], sparsity, within[name]) for name in within}

    def _regrouped(self, name: str, scores: ImportanceArray, sparsity: float, within: MaskArray) -> MaskArray:
        if within.all():
            return self.masks({name: scores}, sparsity)[name]
        tiles = tiles_of_alike_rows(within, self.height, self.canonical)
        groups = np.empty(scores.shape[0], dtype=np.int64)
        for group, rows in enumerate(tiles):
            groups[rows] = group
        most = min(int(np.count_nonzero(within[rows[0]])) for rows in tiles)
        least_sparsity = 1.0 - most / scores.shape[1]
        return prune_in_groups(importance_within(scores, within), max(sparsity, least_sparsity), groups)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `height` rows that keep the same columns, see `tiles_of_alike_rows`."""
        check_mask(mask, self.canonical)
        tiles = tiles_of_alike_rows(mask, self.height, self.canonical)
        found = tile_map_from_rows(
            mask,
            row_index=np.concatenate(tiles),
            row_start=np.cumsum([0, *(rows.size for rows in tiles)]),
            pattern=self.canonical,
        )
        check_equal_counts(found)
        return found
