"""`Incremental`: the estimate of a plan whose tiles change length, at tens of microseconds a change."""

import operator
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launches.launch_floor import launch_floor_s
from prunecast.kernels.plan import KernelPlan
from prunecast.models.roofline import check_names
from prunecast.models.tile_lengths import TileLengths
from prunecast.patterns.tile_map import IntArray, TileMap

__all__ = ["Incremental"]


class _Change(NamedTuple):
    """What `undo` puts back."""

    tile: int
    kept: int
    seconds: float


class Incremental:
    """Seconds of a plan while its tiles change length; who does which item stays as the plan has it.

    `estimate` of the plan whose items have those lengths says the same, at twenty times the price. Making
    one takes as long as tens of estimates, and holds 80 bytes for every kind of item and number of columns.

    A tile that is split is cut where the plan cuts it, in proportion: at the nearest k-step. Which columns
    are kept is not asked: of B the tiles together read as many rows as the plan's, or as many as the longest
    of them keeps.

    Parameters
    ----------
    plan : where to start from
    gpu, state, launch : as in `estimate`
    tiles : the map that was planned, whose tiles are to change: planners cut tall tiles to the height of a
        block. Without, the tiles of the plan

    Raises
    ------
    PlanDoesNotFit, BadInput : as `estimate`, or `tiles` is not what was planned
    """

    def __init__(
        self,
        plan: KernelPlan,
        gpu: GpuSpec,
        *,
        tiles: TileMap | None = None,
        state: str = "burst",
        launch: str = "graph",
    ) -> None:
        check_names(state, launch)
        self._k, self._launch_s = plan.k, launch_floor_s(plan, gpu, launch)
        self._tiles = TileLengths(plan, gpu, state, tiles or plan.tiles, launch_s=self._launch_s)
        self._changes: list[_Change] = []
        self._seconds = self._now()

    @property
    def seconds(self) -> float:
        """Of one launch as it is now, launch floor included."""
        return self._seconds

    @property
    def kept(self) -> IntArray:
        """(tiles,) int32: columns that each tile keeps now."""
        return self._tiles.kept.astype(np.int32)

    def change(self, tile: int, kept: int) -> float:
        """Let a tile keep so many columns; the seconds from now on.

        Raises
        ------
        BadInput : no such tile, or not 0 to K columns
        """
        tile, kept = self._check(tile, kept)
        self._changes.append(_Change(tile, int(self._tiles.kept[tile]), self._seconds))
        self._tiles.set_one(tile, kept)
        self._seconds = self._now()
        return self._seconds

    def undo(self) -> float:
        """Take the last change back that was not taken back yet; the seconds from now on.

        Raises
        ------
        BadInput : there is none
        """
        if not self._changes:
            raise BadInput("undo takes a change back: there is none left")
        last = self._changes.pop()
        self._tiles.set_one(last.tile, last.kept)
        self._seconds = last.seconds
        return last.seconds

    def seconds_if(self, tile: int, kept: int) -> float:
        """What `change` would return; nothing changes. Raises what `change` raises."""
        tile, kept = self._check(tile, kept)
        before = int(self._tiles.kept[tile])
        self._tiles.set_one(tile, kept)
        seconds = self._now()
        self._tiles.set_one(tile, before)
        return seconds

    def seconds_of(self, kept: IntArray) -> float:
        """Seconds if all tiles kept so many columns (tiles,) int32; nothing changes.

        A cost for `patterns.prune_to_cost`, with `tiles` of the same height.

        Raises
        ------
        BadInput : another number of tiles, or not 0 to K columns
        """
        wanted = np.asarray(kept)
        tiles, k = self._tiles.kept.size, self._k
        if wanted.shape != (tiles,) or wanted.dtype.kind not in "iu":
            raise BadInput(f"kept: wanted ({tiles},) integers, got {wanted.dtype} of shape {wanted.shape}")
        if wanted.size and not 0 <= wanted.min() <= wanted.max() <= k:
            raise BadInput(f"kept: wanted 0 to {k} columns, got {wanted.min()} to {wanted.max()}")
        before = self._tiles.kept.copy()
        self._tiles.set_all(wanted.astype(np.int64))
        seconds = self._now()
        self._tiles.set_all(before)
        return seconds

    def _check(self, tile: int, kept: int) -> tuple[int, int]:
        tiles, k = self._tiles.kept.size, self._k
        try:
            tile, kept = operator.index(tile), operator.index(kept)
        except TypeError:
            raise BadInput(f"tile and kept must be integers, got {tile!r} and {kept!r}") from None
        if not 0 <= tile < tiles:
            raise BadInput(f"tile: wanted 0 to {tiles - 1}, got {tile}")
        if not 0 <= kept <= k:
            raise BadInput(f"kept: wanted 0 to {k} columns, got {kept}")
        return tile, kept

    def _now(self) -> float:
        return self._launch_s + self._tiles.kernel_seconds()
