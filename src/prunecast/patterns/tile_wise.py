"""`tile-wise:128` (TW-1D): tiles of consecutive rows, each with its own set of kept columns.

The published pattern (Guo et al., "Accelerating Sparse DNN Models without Hardware-Support via Tile-Wise
Sparsity", SC'20) cuts the output features into tiles and prunes, inside each tile, whole segments along the
other axis. Output features are the rows of A here, so a segment is one column of A inside one tile.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, MatrixShape, Pattern
from prunecast.patterns.segments import broadcast_sizes, piece_sizes, piece_starts, row_sums
from prunecast.patterns.tile_map import MaskArray, TileMap
from prunecast.patterns.tiling import tile_map_from_mask
from prunecast.patterns.within import whole_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWiseQuirks:
    """Where the authors' released code differs from what one would do; False, False, True is the sane choice.

    divide_by_width : divide the L2 norm by the length of the segment instead of its root. The score then
        falls as 1 / sqrt(length): short last tiles are favoured, layers with a large K lose more rows.
    count_dead_rows : TW-2D measures the height of a tile with the dead rows between its survivors, which
        penalises tiles that span many of them.
    retile_on_survivors : TW-2D cuts a tile each time `height` surviving rows have been seen; if False,
        every `height` rows of the matrix, dead or not.
    """

    divide_by_width: bool = False
    count_dead_rows: bool = False
    retile_on_survivors: bool = True


SANE = TileWiseQuirks()


def prune_tile_wise(
    importances: Mapping[str, ImportanceArray],
    sparsity: float,
    *,
    height: int,
    quirks: TileWiseQuirks = SANE,
) -> dict[str, MaskArray]:
    """Masks (M, K) without the lowest segments of all tiles of the whole group of layers.

    A tile is `height` consecutive rows, the last one possibly fewer. A segment is one column of a tile,
    scored by the root mean square of its importance.
    """
    sizes = {name: piece_sizes(scores.shape[0], height) for name, scores in importances.items()}
    scored = {
        name: segment_scores(scores, piece_starts(scores.shape[0], height), sizes[name], quirks)
        for name, scores in importances.items()
    }
    elements = {name: broadcast_sizes(size)[:, None] for name, size in sizes.items()}
    total = sum(scores.size for scores in importances.values())
    kept = keep_highest(scored, elements, elements_to_prune(sparsity, total))
    return {name: np.repeat(kept[name], sizes[name], axis=0) for name in importances}


def segment_scores(
    scores: ImportanceArray, starts: CountArray, lengths: CountArray, quirks: TileWiseQuirks
) -> ImportanceArray:
    """(tiles, K) float64: L2 norm of each segment over the root (or quirk: the whole) of its length."""
    norms = row_sums(scores, starts, power=2)
    np.sqrt(norms, out=norms)
    norms /= (lengths if quirks.divide_by_width else np.sqrt(lengths))[:, None]
    return norms


@dataclass(frozen=True, slots=True, kw_only=True)
class TileWisePattern(Pattern):
    """Tiles of `height` consecutive rows (TW-1D)."""

    family: ClassVar[str] = "tile-wise"
    example: ClassVar[str] = "tile-wise:128"
    meaning: ClassVar[str] = "HEIGHT consecutive rows share their kept columns"
    keeps: ClassVar[Kept] = "tiles"

    height: int

    @property
    def smallest(self) -> MatrixShape:
        """One whole tile."""
        return MatrixShape(self.height, 1)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_tile_wise`."""
        return prune_tile_wise(importances, sparsity, height=self.height)

    def room(self, within: MaskArray) -> MaskArray:
        """Segments that may be kept as a whole."""
        return whole_columns(within, self.height)

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `height` consecutive rows."""
        return tile_map_from_mask(mask, height=self.height, pattern=self.canonical)
