"""What `gpu_items` stamps: tiles that keep equally many columns, or nearly so, in one wave and more."""

from typing import NamedTuple

import numpy as np

from benchmarks.stamps.products import GPU, made_up_tiles, whole_items
from prunecast.kernels import KernelPlan

__all__ = ["CASES", "Waves", "plan_of"]


class Waves(NamedTuple):
    """A product of tiles that keep equally many columns, or nearly so."""

    form: tuple[int, int]
    row_tiles: int
    ranges: int
    """Of tokens."""
    steps: int
    thin: int = 4
    """K over kept columns."""
    kernel: str = "tile"
    scattered: bool = False
    """Rows of a tile do not follow one another in C."""
    spread: int = 0
    """Tiles keep up to so many steps more or less."""
    hardware: bool = False
    stores: bool = True

    @property
    def name(self) -> str:
        """Unique."""
        words = [self.kernel, f"{self.form[0]}x{self.form[1]}", f"{self.row_tiles}x{self.ranges}"]
        words += [f"steps{self.steps}", f"thin{self.thin}"]
        words += ["scattered"] * self.scattered + [f"spread{self.spread}"] * bool(self.spread)
        words += ["hardware"] * self.hardware + ["nostore"] * (not self.stores)
        return " ".join(words)


def cases() -> list[Waves]:
    """The most telling first, should time run out."""
    wide, narrow, middle, tall = (128, 256), (64, 256), (128, 192), (256, 128)
    found = [Waves(wide, 32, 16, steps) for steps in (2, 4, 8)]
    found += [Waves(wide, 32, 16, steps, scattered=True) for steps in (2, 4, 8)]
    found += [Waves(wide, 32, 16, steps, stores=False) for steps in (2, 4, 8)]
    found += [Waves(wide, 86, 16, 7, 10), Waves(wide, 86, 16, 7, 10, scattered=True)]
    found += [Waves(wide, 86, 16, 13, 5, "sparse"), Waves(wide, 32, 16, 13, 5, "sparse")]
    found += [Waves(narrow, 172, 16, 7, 10), Waves(narrow, 64, 16, 7, 10)]
    found += [Waves(wide, 32, ranges, 2) for ranges in (4, 8)]
    found += [Waves(wide, 32, 16, steps, 10) for steps in (2, 7)]
    found += [Waves(wide, 32, 16, 7, 10, spread=2), Waves(wide, 32, 16, 7, 10, spread=2, scattered=True)]
    found += [Waves(wide, 32, 16, 16, 4, scattered=yes) for yes in (False, True)]
    found += [Waves(wide, 86, 64, 2, 32), Waves(wide, 32, 16, 2, hardware=True)]
    found += [Waves(wide, 6, 64, 12, 4), Waves(wide, 6, 64, 12, 4, stores=False)]
    found += [Waves(wide, 32, ranges, 8) for ranges in (4, 8)]
    found += [Waves(wide, 32, 4, 8, scattered=True), Waves(wide, 86, 16, 7, 10, stores=False)]
    found += [Waves(narrow, 172, 16, 7, 10, stores=False), Waves(narrow, 64, 16, 2)]
    found += [Waves(narrow, 64, 16, steps, scattered=True) for steps in (2, 7)]
    found += [Waves(middle, 24, 22, steps, scattered=yes) for steps in (3, 8) for yes in (False, True)]
    found += [Waves(wide, 32, 16, steps, 4, "sparse") for steps in (2, 8)]
    found += [Waves(tall, 16, 32, steps, 4, "sparse") for steps in (2, 8)]
    found += [Waves((128, 128), 32, 32, steps, scattered=yes) for steps in (2, 8) for yes in (False, True)]
    found += [Waves(wide, 32, 16, 8, 1), Waves(wide, 32, 16, 8, hardware=True)]
    return found


def memory_cases() -> list[Waves]:
    """Items of two steps and more that DRAM bounds: rows of C and B of 8 to 33 KB, few and many tiles."""
    wide = (128, 256)
    shapes = [
        (86, 64, 2, 32),
        (86, 65, 2, 32),
        (86, 16, 2, 32),
        (86, 17, 2, 32),
        (16, 64, 2, 4),
        (16, 65, 2, 4),
    ]
    shapes += [
        (6, 64, 2, 4),
        (32, 32, 2, 4),
        (32, 33, 2, 4),
        (32, 64, 2, 4),
        (32, 16, 4, 43),
        (32, 17, 4, 43),
    ]
    shapes += [
        (86, 32, 2, 32),
        (43, 64, 2, 32),
        (86, 64, 2, 4),
        (86, 64, 4, 16),
        (6, 64, 12, 4),
        (6, 65, 12, 4),
    ]
    found = [Waves(wide, *shape, stores=yes) for shape in shapes for yes in (True, False)]
    narrow = [(172, 64, 2, 32), (172, 65, 2, 32), (64, 16, 2, 4)]
    return [*found, *(Waves((64, 256), *shape, stores=yes) for shape in narrow for yes in (True, False))]


CASES = {"items": cases, "memory": memory_cases}


def plan_of(case: Waves) -> KernelPlan:
    """Lists of whole items, longest first, or a block for every item."""
    rng = np.random.default_rng(5)
    kept = 64 * (case.steps + rng.integers(-case.spread, case.spread + 1, case.row_tiles))
    tiles = made_up_tiles(case.form[0], kept, 64 * case.steps * case.thin, rng, _rows(case, rng))
    return whole_items(
        case.kernel, case.form, tiles, case.ranges, blocks=GPU.sm_count, hardware=case.hardware
    )


def _rows(case: Waves, rng: np.random.Generator) -> np.ndarray:
    """Rows in the order of the tiles."""
    rows = case.form[0] * case.row_tiles
    if not case.scattered:
        return np.arange(rows)
    return np.sort(rng.permutation(rows).reshape(case.row_tiles, case.form[0]), axis=1).ravel()
