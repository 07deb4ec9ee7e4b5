"""The times of options that depend on shape and kept columns alone, computed once for all layers alike."""

from dataclasses import dataclass, field

import numpy as np

from prunecast.codesign.engines import Engine
from prunecast.kernels import PLANNERS
from prunecast.patterns import TileMap
from prunecast.patterns.tile_map import frozen_int32

__all__ = ["OptionTimes", "equal_tile_map"]


def equal_tile_map(m: int, k: int, *, kept: int, height: int) -> TileMap:
    """Tiles of `height` rows that keep `kept` columns each, drawn with a fixed seed."""
    rng = np.random.default_rng(0)
    row_start = np.append(np.arange(0, m, height), m)
    tiles = row_start.size - 1
    ranked = np.argpartition(rng.random((tiles, k), np.float32), min(kept, k - 1), axis=1)[:, :kept]
    return TileMap(
        m=m,
        k=k,
        row_start=frozen_int32(row_start),
        row_index=np.arange(m, dtype=np.int32),
        column_start=frozen_int32(np.arange(tiles + 1) * kept),
        column_index=frozen_int32(np.sort(ranked, axis=1).ravel()),
        pattern=f"atp:{height}",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptionTimes:
    """Seconds of dense layers and of tiles with equal counts, for one engine, dtype and number of tokens."""

    engine: Engine
    dtype: str
    _known: dict[tuple[int, ...], float] = field(default_factory=dict, init=False, repr=False)

    def dense(self, m: int, k: int, n: int) -> float:
        """Seconds of the dense kernel."""
        key = (m, k, n)
        if key not in self._known:
            self._known[key] = self.engine.run(
                PLANNERS["dense"](m, k, n, self.dtype, self.engine.gpu)
            ).seconds
        return self._known[key]

    def tiles(self, m: int, k: int, n: int, *, kept: int, height: int) -> float:
        """Seconds of `stspmm` on equal tiles."""
        key = (m, k, n, kept, height)
        if key not in self._known:
            equal = equal_tile_map(m, k, kept=kept, height=height)
            plan = PLANNERS["stspmm"](equal, n, self.dtype, self.engine.gpu)
            self._known[key] = self.engine.run(plan).seconds
        return self._known[key]
