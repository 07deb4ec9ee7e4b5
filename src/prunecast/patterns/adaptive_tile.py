"""`atp:128`: tiles of evened work, by hierarchical tile pruning (HTP). `atp-2d:128` prunes whole rows first.

"Adaptive Tile Pruning for Efficient Inference of the Imbalanced DNNs on GPU" (Li and Ino, IEICE Transactions
on Information and Systems, 2025) keeps the workloads of tiles flexibly balanced. Only abstracts have been
read, no code is public, and they give no steps. All of these are therefore our own choices:

* Counts lie on a quantum of columns (16, one step of the tensor cores), or at K.
* Counts lie within an interval around the mean of the layer, 97 to 103 % unless the pattern says otherwise;
  the two multiples next to the mean are always allowed. Equal bounds of 100 % give strict balance.
* Inside the interval, columns move between tiles to where they retain most, by the ranking of `tile_wise`.
  The interval 0-inf with a quantum of 1 therefore is `tile-wise`, and for `atp-2d` `tile-wise-2d`.
* Of layers ranked together, each first gets the share that tile-wise would give it.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.cut import CountArray, elements_to_prune, keep_highest
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import MatrixShape, Pattern
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tile_quanta import best_columns, best_counts, count_range
from prunecast.patterns.tile_wise import SANE, segment_scores
from prunecast.patterns.tile_wise_2d import Survivors, keep_rows, spread_tiles, survivors_of
from prunecast.patterns.tiling import tile_map_from_mask

__all__ = ["UNBOUNDED", "AdaptiveTile2DPattern", "AdaptiveTilePattern", "prune_adaptive_tile"]

QUANTUM = 16
LOW = 97
HIGH = 103
UNBOUNDED = 10**9
"""Percent of the mean that no tile reaches: `inf` in a pattern string."""


def prune_adaptive_tile(
    importances: Mapping[str, ImportanceArray],
    sparsity: float,
    *,
    height: int,
    quantum: int = QUANTUM,
    low: int = LOW,
    high: int = HIGH,
    rows_first: bool = False,
) -> dict[str, MaskArray]:
    """Masks (M, K) whose tiles keep counts of columns on a quantum, within an interval around the mean.

    Parameters
    ----------
    importances : layer -> importance (M, K)
    sparsity : of the group; at least that is reached
    height : rows of a tile, the last one of a layer possibly fewer
    quantum : step of the counts
    low, high : percent of the layer's mean count, low <= 100 <= high
    rows_first : whole rows go first, as in TW-2D; tiles have `height` surviving rows

    """
    total = sum(scores.size for scores in importances.values())
    row_target = elements_to_prune(1.0 - math.sqrt(1.0 - sparsity), total) if rows_first else 0
    rows = keep_rows(importances, row_target, SANE)
    layers = {name: survivors_of(rows[name], height, SANE) for name in importances}
    scored = {
        name: segment_scores(importances[name][layer.rows], layer.starts, layer.heights, SANE)
        for name, layer in layers.items()
    }
    dead = sum(
        (scores.shape[0] - layers[name].rows.size) * scores.shape[1] for name, scores in importances.items()
    )
    shares = _shares(scored, layers, elements_to_prune(sparsity, total) - dead)
    kept = {
        name: _even_out(scored[name], layers[name].heights, shares[name], quantum, low, high)
        for name in importances
    }
    return {name: spread_tiles(kept[name], layers[name], importances[name]) for name in importances}


def _shares(
    scored: Mapping[str, ImportanceArray], layers: Mapping[str, Survivors], target: int
) -> dict[str, int]:
    """Layer -> elements that it has to prune: what tile-wise would."""
    if len(scored) == 1:
        return dict.fromkeys(scored, max(target, 0))
    elements = {name: layer.heights[:, None] for name, layer in layers.items()}
    kept = keep_highest(scored, elements, target)
    return {name: int((~kept[name] * elements[name]).sum()) for name in scored}


def _even_out(
    scores: ImportanceArray, heights: CountArray, to_prune: int, quantum: int, low: int, high: int
) -> MaskArray:
    """(tiles, K) flags of the kept columns of one layer's tiles."""
    rows, k = int(heights.sum()), scores.shape[1]
    if rows == 0:
        return np.zeros(scores.shape, dtype=np.bool_)
    allowed = count_range(rows * k - to_prune, rows, k, quantum=quantum, low=low, high=high)
    return best_columns(scores, best_counts(scores, heights, to_prune, allowed, quantum))


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTilePattern(Pattern):
    """Tiles of `height` consecutive rows that keep counts on a quantum, close to each other.

    Spelled `atp:HEIGHT`, `atp:HEIGHTxQUANTUM` or `atp:HEIGHTxQUANTUMxLOW-HIGH`, the interval in percent of
    the mean, its upper end possibly `inf`.
    """

    family: ClassVar[str] = "atp"
    example: ClassVar[str] = "atp:128"
    rows_first: ClassVar[bool] = False

    height: int
    quantum: int = QUANTUM
    low: int = LOW
    high: int = HIGH

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """From `128`, `128x16` or `128x16x90-110`."""
        match = re.fullmatch(r"(\d{1,9})(?:x(\d{1,9})(?:x(\d{1,3})-(\d{1,9}|inf))?)?", argument)
        sizes = [int(part) for part in match.groups()[:2] if part] if match else [0]
        if match is None or min(sizes) < 1:
            raise BadInput(
                f"pattern like {cls.example} or {cls.example}x16x97-103: wanted height and quantum from 1 "
                f"and an interval in percent, got {argument!r}"
            )
        if match[3] is None:
            return cls(**dict(zip(("height", "quantum"), sizes, strict=False)))
        low, high = int(match[3]), UNBOUNDED if match[4] == "inf" else int(match[4])
        if not low <= 100 <= high:
            raise BadInput(
                f"pattern {cls.family}: wanted an interval around 100 %, got {match[3]}-{match[4]}"
            )
        return cls(height=sizes[0], quantum=sizes[1], low=low, high=min(high, UNBOUNDED))

    @property
    def canonical(self) -> str:
        """Without what has its default."""
        text = f"{self.family}:{self.height}"
        if (self.low, self.high) != (LOW, HIGH):
            high = "inf" if self.high == UNBOUNDED else self.high
            return f"{text}x{self.quantum}x{self.low}-{high}"
        return text if self.quantum == QUANTUM else f"{text}x{self.quantum}"

    @property
    def smallest(self) -> MatrixShape:
        """One whole tile, one quantum wide."""
        return MatrixShape(self.height, self.quantum)

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """See `prune_adaptive_tile`."""
        return prune_adaptive_tile(
            importances,
            sparsity,
            height=self.height,
            quantum=self.quantum,
            low=self.low,
            high=self.high,
            rows_first=self.rows_first,
        )

    def map(self, mask: MaskArray) -> TileMap:
        """Tiles of `height` rows; refused off the quantum, and where one keeps more than the interval."""
        check_mask(mask, self.canonical)
        rows = np.flatnonzero(mask.any(axis=1)) if self.rows_first else None
        tiles = tile_map_from_mask(mask, height=self.height, pattern=self.canonical, rows=rows)
        kept = tiles.kept_per_tile
        off = np.flatnonzero((kept % self.quantum > 0) & (kept < tiles.k))
        if off.size:
            raise BadInput(
                f"mask is not {self.canonical}: tile {off[0]} keeps {kept[off[0]]} columns, no multiple of "
                f"{self.quantum}"
            )
        most = self._most(tiles)
        if kept.max(initial=0) > most:
            raise BadInput(
                f"mask is not {self.canonical}: tile {kept.argmax()} keeps {kept.max()} columns, more than "
                f"the {most} that {self.high} % of the mean allows"
            )
        return tiles

    def _most(self, tiles: TileMap) -> int:
        """Most columns of a tile, if the pruner was to keep up to one step more than it could."""
        elements = int(np.dot(tiles.rows_per_tile.astype(np.int64), tiles.kept_per_tile.astype(np.int64)))
        wanted = elements + self.height * self.quantum - 1
        rows = max(int(tiles.row_index.size), 1)
        return count_range(
            min(wanted, rows * tiles.k), rows, tiles.k, quantum=self.quantum, low=self.low, high=self.high
        ).high


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTile2DPattern(AdaptiveTilePattern):
    """As `atp`, on tiles of `height` surviving rows."""

    family: ClassVar[str] = "atp-2d"
    example: ClassVar[str] = "atp-2d:128"
    rows_first: ClassVar[bool] = True
