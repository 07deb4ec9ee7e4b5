"""`vnm:64:2:8` (V:N:M): V rows share 4 of every M columns, and of these every row keeps 2.

This is the format of VENOM (Castro et al., SC'23, arXiv 2310.02065), with which sparse tensor cores run any
sparsity 1 - 2 / M. N is always 2, the only number that the hardware supports. Our own choices: the score of a
column is the sum of its importance over the V rows (VENOM's pruner is second-order), of equal scores the
lower column is kept, and a last window of fewer than M columns keeps a proportional part of 4, halves rounded
up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.element_map import NestedMap
from prunecast.patterns.n_of_m import kept_in_windows, prune_n_of_m
from prunecast.patterns.pattern import Kept, MatrixShape, check_sparsity
from prunecast.patterns.row_tiles import Masks, RowTilePattern, Scores
from prunecast.patterns.tile_map import MaskArray, check_mask
from prunecast.patterns.tiling import RowTiles, nested_map

COLUMNS = 4
"""Number of columns that a group of rows keeps of each window; each row then keeps 2 of these 4."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorNOfMPattern(RowTilePattern):
    """Groups of `height` rows that share 4 of every `m` columns, of which each row keeps `n` = 2."""

    family: ClassVar[str] = "vnm"
    example: ClassVar[str] = "vnm:64:2:8"
    meaning: ClassVar[str] = "V:2:M: V rows share 4 of every M columns, and each of them keeps 2 of the 4"
    keeps: ClassVar[Kept] = "elements in tiles"
    separator: ClassVar[str] = ":"

    n: int
    m: int

    def __post_init__(self) -> None:
        if self.n != 2 or self.m < COLUMNS:
            raise BadInput(f"pattern V:N:M: wanted N = 2 and M from {COLUMNS}, got {self.n}:{self.m}")

    @property
    def smallest(self) -> MatrixShape:
        """Return the smallest matrix that can be pruned: one window of columns in one group of rows."""
        return MatrixShape(self.height, self.m)

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return 1 - 2 / m, the only sparsity of the pattern. Raises BadInput for any other."""
        own = 1.0 - self.n / self.m
        if sparsity is not None and abs(check_sparsity(sparsity) - own) > 1e-9:
            m = max(COLUMNS, round(self.n / (1.0 - sparsity)))
            raise BadInput(
                f"{self.canonical} only has sparsity {own:.4g}, got {sparsity}; the nearest is "
                f"{self.family}:{self.height}:{self.n}:{m} with {1.0 - self.n / m:.4g}"
            )
        return own

    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> (tiles, K) flags of the best 4 of every `m` columns of each tile."""
        sums = {name: own.sums(importances[name]) for name, own in tiles.items()}
        return {name: prune_n_of_m(own, n=COLUMNS, m=self.m) for name, own in sums.items()}

    def map(self, mask: MaskArray) -> NestedMap:
        """Return tiles that list 4 columns of every window, and the elements inside.

        If the rows of a tile keep fewer than 4 columns of a window, the lowest other columns are listed too.
        Raises BadInput if they keep more than 4.
        """
        check_mask(mask, self.canonical)
        used = RowTiles.of(np.arange(len(mask)), self.height).sums(mask) > 0
        columns = prune_n_of_m(used.astype(np.float32), n=COLUMNS, m=self.m)
        if (more := used & ~columns).any():
            tile, column = (int(index[0]) for index in np.nonzero(more))
            window = column // self.m
            count = kept_in_windows(used, self.m)[tile, window]
            raise BadInput(
                f"mask is not {self.canonical}: tile {tile} keeps {count} of the columns from "
                f"{window * self.m}"
            )
        return nested_map(mask, columns, height=self.height, pattern=self.canonical)
