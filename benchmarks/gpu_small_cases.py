"""What is checked and timed of the kernel for few tokens: layers, forms, maps; needs no GPU.

A form that does not fit on an SM, or that cannot be compiled, is left out when the run is prepared, so that
the GPU machine compiles nothing and loads what it is told to.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from benchmarks.gpu_cases import GPU, Case, tile_map
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.configs import HEIGHTS, SmallConfig, block_width, small_resources
from prunecast.kernels.small_n.planner import choose_small_n, plan_small_n
from prunecast.patterns import TileMap

__all__ = [
    "CHECKED_TOKENS",
    "DENSITIES",
    "ENDINGS",
    "ENDING_FORM",
    "KEPT",
    "LAYERS",
    "TOKENS",
    "SmallCheck",
    "ending_plan",
    "form_name",
    "forms_of",
    "layer_case",
    "padded",
    "plan_of_check",
    "ragged_map",
    "small_checks",
    "timed_plan",
]

LAYERS = ((11008, 4096), (4096, 4096), (4096, 11008), (768, 3072))
TOKENS = (16, 1, 64, 4, 32)
DENSITIES = (0.5, 0.25, 0.1)
RINGS = {4: (4, 8), 8: (3, 4, 6), 16: (2, 4)}
"""Warps of a block -> k16s on their way of each."""
CHECKED_TOKENS = (1, 2, 3, 7, 8, 16, 17, 33, 64, 65)
CHECKED_RINGS = ((4, 8), (8, 3), (8, 6), (16, 2))
KEPT = (*range(66), 1100)
ENDINGS = ("none", "relu", "gelu")
ENDING_FORM = SmallConfig(32, 16, 4)


class SmallCheck(NamedTuple):
    """One form on the ragged map."""

    dtype: str
    n: int
    form: SmallConfig

    @property
    def name(self) -> str:
        """Unique among the checks."""
        return f"{form_name(self.form)} {self.dtype} N={self.n}"


def form_name(form: SmallConfig) -> str:
    """Rows x tokens of a block, warps, k16s of a warp on their way."""
    return f"{form.block_m}x{form.block_n} w{form.warps} d{form.depth}"


def fits(form: SmallConfig, n: int) -> bool:
    """Whether one block of it fits on an SM."""
    return occupancy(small_resources(form, n), GPU).blocks_per_sm > 0


def layer_case(m: int, k: int, n: int, density: float) -> Case:
    """Tiles as in the benchmark of the tile kernel."""
    return Case(m, k, n, density)


def forms_of(case: Case) -> list[SmallConfig]:
    """The planner's forms, fastest first, then the others to be timed beside them."""
    own = [found.config for found in choose_small_n(tile_map(case), case.n, "fp16", GPU)]
    width = block_width(case.n)
    grid = [SmallConfig(h, width, d, w) for h in HEIGHTS for w, depths in RINGS.items() for d in depths]
    narrow = [SmallConfig(h, width // 2, 4) for h in (64, 32)] if case.n >= 32 else []
    return [form for form in dict.fromkeys([*own, *grid, *narrow]) if fits(form, case.n)]


def timed_plan(tiles: TileMap, n: int, form: SmallConfig) -> KernelPlan:
    """The plan of a timed case."""
    return plan_small_n(tiles, n, "fp16", GPU, config=form)


def padded(n: int) -> int:
    """Tokens that the tile kernel is given for `n`: its rows are whole groups of 16 bytes."""
    return -(-n // 8) * 8


def ragged_map(height: int) -> TileMap:
    """A tile for every count of `KEPT`, the last one short; rows shuffled, five rows in no tile; eight
    columns that nobody keeps.
    """
    rng = np.random.default_rng(height)
    k = KEPT[-1] + 8
    heights = np.full(len(KEPT), height)
    heights[-1] = height // 2 + 3
    m = int(heights.sum()) + 5
    return TileMap(
        m=m,
        k=k,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 5],
        column_start=np.concatenate(([0], np.cumsum(KEPT))),
        column_index=np.concatenate([np.sort(rng.choice(k - 8, kept, replace=False)) for kept in KEPT]),
        pattern=f"tile-wise:{height}",
    )


def small_checks() -> Iterator[SmallCheck]:
    """Every height with every number of warps, for all tokens and both dtypes."""
    for height in HEIGHTS:
        for dtype in ("fp16", "bf16"):
            for n in CHECKED_TOKENS:
                for warps, depth in CHECKED_RINGS:
                    form = SmallConfig(height, block_width(n), depth, warps)
                    if fits(form, n):
                        yield SmallCheck(dtype, n, form)


def plan_of_check(check: SmallCheck, tiles: TileMap) -> KernelPlan:
    """The plan of a check on the ragged map of its height."""
    return plan_small_n(tiles, check.n, check.dtype, GPU, config=check.form)


def ending_plan(n: int) -> KernelPlan:
    """For bias and activation."""
    form = ENDING_FORM._replace(block_n=block_width(n))
    return plan_small_n(ragged_map(form.block_m), n, "fp16", GPU, config=form)
