"""`atp:128`: tiles of nearly equal numbers of columns (`adaptive_tile`); `atp-2d:128` prunes rows first."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from prunecast.errors import BadInput
from prunecast.patterns.adaptive_tile import (
    QUANTUM,
    UNBOUNDED,
    AdaptiveRule,
    even_out,
    prune_adaptive_tile,
    tile_orders,
)
from prunecast.patterns.cut import elements_to_prune
from prunecast.patterns.guided_tile import prune_guided
from prunecast.patterns.importance import ImportanceArray
from prunecast.patterns.pattern import Kept, MatrixShape
from prunecast.patterns.row_groups import tiles_of_alike_rows
from prunecast.patterns.shuffled_block import SEED
from prunecast.patterns.tile_map import MaskArray, TileMap, check_mask
from prunecast.patterns.tile_sums import TileSums, count_range
from prunecast.patterns.tiling import RowTiles

GRAMMAR = re.compile(
    r"(?P<height>\d{1,9})(?:x(?P<quantum>\d{1,9})(?:x(?P<low>\d{1,3})-(?P<high>\d{1,9}|inf))?)?"
    r"(?P<shuffled>:shuffled)?(?P<rms>:rms)?(?P<guided>:guided)?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTilePattern(AdaptiveRule):
    """Tiles of `height` rows that keep nearly equal numbers of columns, in multiples of `quantum`.

    The pattern string is `atp:HEIGHT`, `atp:HEIGHTxQUANTUM` or `atp:HEIGHTxQUANTUMxLOW-HIGH`. LOW-HIGH is the
    allowed interval of the number of columns in percent of the mean; HIGH may be `inf`. Without it, the
    interval depends on the importance (`AdaptiveRule.flexible`). The suffix `:shuffled` forms tiles of any
    rows if that retains more importance, and makes pruning slower. The suffix `:rms` ranks columns as
    `tile-wise` does. The suffix `:guided` chooses the numbers of columns by predicted time (`guided_tile`).
    """

    family: ClassVar[str] = "atp"
    example: ClassVar[str] = "atp:128"
    meaning: ClassVar[str] = (
        "as tile-wise, with about equally many columns in all tiles;"
        " see HEIGHTxQUANTUMxLOW-HIGH:shuffled:guided"
    )
    keeps: ClassVar[Kept] = "tiles"

    @classmethod
    def from_argument(cls, argument: str) -> Self:
        """Return the pattern for an argument like `128`, `128x16`, `128x16x90-110` or `128:shuffled`."""
        match = GRAMMAR.fullmatch(argument)
        given = {name: text for name, text in match.groupdict().items() if text} if match else {}
        values: dict[str, Any] = {
            name: UNBOUNDED if given[name] == "inf" else min(int(given[name]), UNBOUNDED)
            for name in ("height", "quantum", "low", "high")
            if name in given
        }
        if match is None or min(values["height"], values.get("quantum", 1)) < 1:
            raise BadInput(
                f"pattern like {cls.example} or {cls.example}x16x97-103:shuffled: wanted height and quantum "
                f"from 1 and an interval in percent, got {argument!r}"
            )
        values |= {name: name in given for name in ("shuffled", "guided")}
        made = cls(**values, score="rms" if "rms" in given else "mean", flexible="low" not in given)
        if not made.low <= 100 <= made.high:
            raise BadInput(
                f"pattern {cls.family}: wanted an interval around 100 %, got {match['low']}-{match['high']}"
            )
        if made.guided and (not made.flexible or made.score == "rms" or cls.rows_first):
            raise BadInput(
                f"guided counts follow time alone: wanted atp:HEIGHTxQUANTUM:guided, got {argument!r}"
            )
        return made

    @property
    def canonical(self) -> str:
        """Return the pattern string; it omits parts with default values."""
        text = f"{self.family}:{self.height}"
        if not self.flexible:
            high = "inf" if self.high == UNBOUNDED else self.high
            text += f"x{self.quantum}x{self.low}-{high}"
        elif self.quantum != QUANTUM:
            text += f"x{self.quantum}"
        return text + ":shuffled" * self.shuffled + ":rms" * (self.score == "rms") + ":guided" * self.guided

    @property
    def smallest(self) -> MatrixShape:
        """Return the smallest matrix that can be pruned: one whole tile, one quantum wide."""
        return MatrixShape(self.height, self.quantum)

    @property
    def seed(self) -> int | None:
        """Return the seed of the random order in which rows are exchanged; None if rows are not shuffled."""
        return SEED if self.shuffled else None

    def masks(self, importances: Mapping[str, ImportanceArray], sparsity: float) -> dict[str, MaskArray]:
        """Return layer -> mask (M, K), from `prune_adaptive_tile` or, if guided, from `prune_guided`.

        Raises BadInput if the pattern is guided but has no function that predicts times.
        """
        if not self.guided:
            return prune_adaptive_tile(importances, sparsity, self)
        seconds = self.told_times()
        orders = tile_orders(importances, sparsity, self)
        sizes = {"height": self.height, "quantum": self.quantum}
        return prune_guided(importances, sparsity, orders, seconds, confirm=self.confirm, **sizes)

    def map(self, mask: MaskArray) -> TileMap:
        """Return tiles of `height` rows.

        Raises
        ------
        BadInput : the rows of a tile differ; or, unless the pattern is guided, a tile keeps a number of
            columns that is neither K nor a multiple of the quantum, or more than a given interval allows
        """
        check_mask(mask, self.canonical)
        tiles = self._tiles(mask)
        if self.guided:
            return tiles  # tile-wise pruning's own counts may have been the fastest
        kept = tiles.kept_per_tile
        off = np.flatnonzero((kept % self.quantum > 0) & (kept < tiles.k))
        if off.size:
            raise BadInput(
                f"mask is not {self.canonical}: tile {off[0]} keeps {kept[off[0]]} columns, no multiple of "
                f"{self.quantum}"
            )
        most = self._most(tiles)
        if kept.max(initial=0) > most and not self.flexible:
            raise BadInput(
                f"mask is not {self.canonical}: tile {kept.argmax()} keeps {kept.max()} columns, more than "
                f"the {most} that {self.high} % of the mean allows"
            )
        return tiles

    @property
    def needs_only_sums(self) -> bool:
        """Return True if pruning needs only the column sums over tiles of neighbouring rows."""
        return not (self.rows_first or self.shuffled or self.guided) and self.score == "mean"

    def map_of_sums(self, sums: TileSums, sparsity: float) -> TileMap:
        """Return the tile map of one layer as `prune` would make it, from column sums of its tiles.

        Parameters
        ----------
        sums : column sums of tiles whose height divides this pattern's
        sparsity : in [0, 1)

        Raises
        ------
        BadInput : the pattern needs more than column sums (`needs_only_sums`), the tile height of `sums` does
            not divide this pattern's, or the sparsity is invalid
        """
        if not self.needs_only_sums:
            raise BadInput(f"{self.canonical} asks for more than sums over tiles, wanted atp:HEIGHT")
        own = sums.taller(self.height)
        to_prune = elements_to_prune(self.sparsity_to_prune(sparsity), own.m * own.k)
        kept = even_out(own.sums, own.heights, to_prune, self)
        return RowTiles.of(np.arange(own.m), self.height).tile_map(kept, own.m, self.canonical)

    def _tiles(self, mask: MaskArray) -> TileMap:
        """Return tiles of neighbouring rows or, if shuffled, of rows with the same kept columns.

        With `atp-2d`, rows that keep nothing are in no tile.
        """
        rows = np.flatnonzero(mask.any(axis=1)) if self.rows_first else np.arange(mask.shape[0])
        tiles = RowTiles.of(rows, self.height)
        if self.shuffled:
            alike = tiles_of_alike_rows(mask[rows], self.height, self.canonical)
            tiles = alike._replace(rows=rows[alike.rows])
        return tiles.map_of_mask(mask, self.canonical)

    def _most(self, tiles: TileMap) -> int:
        """Return the maximum number of columns of a tile, with tolerance for the rounding of the pruner.

        The pruner may prune up to one step more than the sparsity needs, which lowers the mean. The limit is
        therefore computed from the largest number of elements that may have been requested.
        """
        wanted = tiles.kept_count + self.height * self.quantum - 1
        rows = max(int(tiles.row_index.size), 1)
        return count_range(
            min(wanted, rows * tiles.k), rows, tiles.k, quantum=self.quantum, low=self.low, high=self.high
        ).high


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptiveTile2DPattern(AdaptiveTilePattern):
    """Adaptive tile pruning of the rows that survive the pruning of whole rows, in tiles of `height` rows."""

    family: ClassVar[str] = "atp-2d"
    example: ClassVar[str] = "atp-2d:128"
    meaning: ClassVar[str] = "whole rows go first, then as atp on the rest"
    keeps: ClassVar[Kept] = "tiles"
    rows_first: ClassVar[bool] = True
