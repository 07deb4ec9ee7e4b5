"""`tvw:128`: tile-wise, then 2 of every 4 surviving neighbours in each row, for sparse tensor cores.

TVW (Guo et al., "Accelerating Sparse DNNs Based on Tiled GEMM", IEEE TC 2024) prunes tiles at
s_TW = 1 - 2 (1 - s) and then prunes half of the rest by 2:4. The groups of four are formed along each tile's
own list of columns, which is the K axis of the compacted tile that the hardware multiplies. Below 50 % the
released code skips the tile step and keeps 3 of 4, whatever the sparsity, which no sparse tensor core can
run; here a sparsity below 0.5 is refused.

The mask does not show a column that the tile keeps but in which 2:4 has pruned every row. Without this
column, the following groups of four would shift. `padded_columns` therefore adds as few columns as possible,
so that every row keeps at most two of every four. All lists with this property describe the same product.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.adaptive_tile import nearly_equal
from prunecast.patterns.adaptive_tile_pattern import AdaptiveTilePattern
from prunecast.patterns.cut import CountArray, piece_starts, stated_masks
from prunecast.patterns.element_map import NestedMap
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.n_of_m import retained_by_two_of_four
from prunecast.patterns.pattern import Kept, MatrixShape, Pattern
from prunecast.patterns.row_tiles import Masks, Scores
from prunecast.patterns.tile_map import MaskArray, check_mask
from prunecast.patterns.tile_wise import TileWisePattern
from prunecast.patterns.tiling import RowTiles, nested_map


@dataclass(frozen=True, slots=True, kw_only=True)
class TileTwoOfFourPattern(TileWisePattern):
    """Tiles of `height` consecutive rows, in which each row keeps 2 of 4 neighbouring kept columns.

    With the pattern string `tvw:HEIGHT:even`, all tiles keep nearly equal numbers of columns, as with `atp`.
    """

    family: ClassVar[str] = "tvw"
    example: ClassVar[str] = "tvw:128"
    meaning: ClassVar[str] = "as tile-wise, then 2:4 on the columns that are left in each tile"
    keeps: ClassVar[Kept] = "elements in tiles"
    by_blocks: ClassVar[bool] = False

    even: bool = False
    """True if all tiles keep nearly equal numbers of columns."""

    @property
    def smallest(self) -> MatrixShape:
        """Return the smallest matrix that can be pruned: one whole tile with one group of four columns."""
        return MatrixShape(self.height, 4)

    def sparsity_to_prune(self, sparsity: float | None) -> float:
        """Return the sparsity as given. Raises BadInput below 0.5, the sparsity of 2:4 in dense tiles."""
        wanted = Pattern.sparsity_to_prune(self, sparsity)
        if wanted < 0.5:
            raise BadInput(
                f"{self.canonical} keeps 2 of 4 at most: wanted a sparsity from 0.5, got {sparsity}; "
                f"tile-wise:{self.height} can keep more"
            )
        return wanted

    def masks(self, importances: Scores, sparsity: float) -> Masks:
        """Return the masks (M, K): prune tiles, then 2:4.

        Weights that already have this pattern and sparsity keep their mask.
        """
        stated = stated_masks(importances, sparsity, self.map)
        return stated or TileWisePattern.masks(self, importances, sparsity)

    def cut(self, importances: Scores, tiles: Mapping[str, RowTiles], sparsity: float) -> Masks:
        """Return layer -> (tiles, K) flags of the columns kept at a sparsity of 1 - 2 (1 - sparsity).

        The sparsity is reduced because 2:4 then prunes half of the remaining elements.
        """
        of_tiles = max(1.0 - 2.0 * (1.0 - sparsity), 0.0)
        if self.even:
            return nearly_equal(importances, tiles, of_tiles, AdaptiveTilePattern(height=self.height))
        return TileWisePattern.cut(self, importances, tiles, of_tiles)

    def retained(self, importance: ImportanceArray, sparsity: float) -> float:
        """Return the importance that `prune` of a layer retains, up to rounding, without making its mask.

        Parameters
        ----------
        importance : importance of the layer's weights, (M, K)
        sparsity : from 0.5

        Raises
        ------
        BadInput : in the same cases as `prune`
        """
        fraction, layer = self.sparsity_to_prune(sparsity), {"layer": self._checked("layer", importance)}
        scores = layer["layer"]
        if stated_masks(layer, fraction, self.map):
            return float(scores.sum(dtype=np.float64))
        tiles = self.group(layer, fraction)
        (rows,), (kept,) = tiles.values(), self.cut(layer, tiles, fraction).values()
        return sum(
            retained_by_two_of_four(scores[first : first + height, columns].astype(np.float64))
            for first, height, columns in zip(rows.starts, rows.heights, kept, strict=True)
        )

    def map(self, mask: MaskArray) -> NestedMap:
        """Return tiles of `height` rows with padding columns (`padded_columns`), and their kept elements."""
        check_mask(mask, self.canonical)
        starts = piece_starts(mask.shape[0], self.height)
        columns = np.array([padded_columns(mask[first : first + self.height]) for first in starts])
        return nested_map(mask, columns, height=self.height, pattern=self.canonical)


class _Path(NamedTuple):
    """Cheapest path to a state of `_groups`: columns added so far, and the preceding state."""

    added: int
    first: int
    borrowed: int


def padded_columns(rows: MaskArray) -> MaskArray:
    """Return (K,) flags of the columns that one tile lists: kept columns and padding.

    The padding completes groups of four listed columns, so that each row keeps at most two columns of each
    group. If no such list exists, only the kept columns are listed.

    Parameters
    ----------
    rows : mask (rows, K) of the tile
    """
    listed: MaskArray = np.logical_or.reduce(rows, axis=0)
    kept = np.flatnonzero(listed)
    # No padding where no row keeps more than two of four neighbours
    in_groups = np.add.reduceat(rows[:, kept], np.arange(0, kept.size, 4), axis=1, dtype=np.int32)
    if in_groups.max(initial=0) <= 2:
        return listed
    starts = _groups(rows, kept)
    for first, stop in zip(starts, [*starts[1:], kept.size], strict=True):
        if stop == kept.size:
            break
        missing = 4 - (stop - first)
        # The group before may have borrowed columns of the gap: start after the last listed one
        last = np.flatnonzero(listed[: kept[first]])[-1:]
        begin = int(last[0]) + 1 if last.size else 0
        free = begin + np.flatnonzero(~listed[begin : kept[stop]])
        listed[free[:missing]] = True
    return listed


def _longest(rows: MaskArray) -> CountArray:
    """Return the maximum length, up to 4, of a group that begins at each column, (K,) int64.

    In a group, every row keeps at most two columns.
    """
    sums = np.cumsum(np.pad(rows, ((0, 0), (1, 4))), axis=1, dtype=np.int64)
    longest = np.full(rows.shape[1], 2)
    for length in (3, 4):
        most = (sums[:, length:] - sums[:, :-length]).max(axis=0)[: rows.shape[1]]
        longest[(most <= 2) & (longest == length - 1)] = length
    fitting: CountArray = np.minimum(longest, np.arange(rows.shape[1], 0, -1))
    return fitting


def _groups(rows: MaskArray, kept: CountArray) -> list[int]:
    """Return the positions in `kept` where groups of four begin, with the fewest columns added.

    Dynamic programming: a state is a position in `kept` and the number of columns that the group before has
    borrowed from the gap before it. Returns [0] if no valid list exists.
    """
    longest = _longest(rows[:, kept])
    gaps = np.diff(kept, prepend=-1) - 1
    reached: list[dict[int, _Path]] = [{} for _ in range(kept.size + 1)]
    reached[0][0] = _Path(0, -1, 0)
    for first in range(kept.size):
        for borrowed, path in reached[first].items():
            for length in range(1, int(longest[first]) + 1):
                stop = first + length
                missing = 4 - length if stop < kept.size else 0
                own = int(gaps[first]) - borrowed + int(gaps[first + 1 : stop].sum())
                borrow = max(missing - own, 0)
                if borrow and borrow > gaps[stop]:
                    continue
                step = _Path(path.added + missing, first, borrowed)
                if borrow not in reached[stop] or step.added < reached[stop][borrow].added:
                    reached[stop][borrow] = step
    # Walk back from the end, where nothing is borrowed
    starts: list[int] = []
    last = reached[-1].get(0)
    while last is not None and last.first >= 0:
        starts.append(last.first)
        last = reached[last.first][last.borrowed]
    return starts[::-1] or [0]
