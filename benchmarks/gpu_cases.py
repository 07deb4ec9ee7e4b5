"""Cases of the GPU benchmark: layers, tile maps, and their plans, which may have been made elsewhere.

The planner needs Numba, which a GPU machine may lack. From the file that `gpu_prepare` writes, a plan is put
together again with the very work list, schedule and form that the planner chose.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, Schedule, WorkList, plan_stspmm
from prunecast.kernels.tile.tile_plan import tile_plan
from prunecast.kernels.tile.wgmma_configs import wgmma_configs
from prunecast.patterns import TileMap
from prunecast.plan.order import Assigned
from prunecast.plan.tile_rows import cut_rows

__all__ = [
    "GPU",
    "LARGE",
    "LAYERS",
    "TILE_ROWS",
    "Case",
    "full_cases",
    "plans_of",
    "quick_cases",
    "split_cases",
    "tile_map",
    "write_plans",
]

GPU = load_gpu("h200-sxm")
TILE_ROWS = (128, 256)
"""Heights of tiles; the pruner may choose, so that the faster one of a layer counts."""


class Case(NamedTuple):
    """One product to be timed against dense."""

    m: int
    k: int
    n: int
    density: float
    kept: str = "equal"
    """How kept columns are spread over tiles: `equal`, `lognormal`, `one-full`, `ramp`."""
    whole: bool = False
    """Whether the planner may not split tiles."""
    rows: int = TILE_ROWS[0]
    """Height of the tiles."""

    @property
    def layer(self) -> str:
        """M x K x N."""
        return f"{self.m}x{self.k}x{self.n}"

    @property
    def name(self) -> str:
        """Unique among the cases."""
        rows = "" if self.rows == TILE_ROWS[0] else f" rows={self.rows}"
        return f"{self.layer} d={self.density:g} {self.kept}{rows}{' whole' if self.whole else ''}"


LAYERS = (
    (4096, 4096, 2048),
    (11008, 4096, 2048),
    (4096, 11008, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (4096, 1024, 8192),
    (1024, 4096, 8192),
    (3072, 768, 4096),
    (768, 3072, 4096),
    (512, 2048, 4096),
    (256, 2304, 12544),
    (512, 4608, 3136),
)
LARGE = tuple(layer for layer in LAYERS if layer[0] >= 4096 and layer[1] >= 4096)
SKEWED = ("lognormal", "one-full", "ramp")


def quick_cases() -> list[Case]:
    """Four layers that stand for the rest."""
    layers = (LAYERS[3], LAYERS[1], LAYERS[7], LAYERS[8])
    return _both_heights(Case(*layer, density) for layer in layers for density in (0.25, 1.0))


def split_cases() -> list[Case]:
    """Plans that split tiles beside plans that may not: what splitting costs and gains."""
    split = [
        *(Case(11008, 4096, 2048, density) for density in (0.5, 0.25, 0.1)),
        *(Case(8192, 8192, 8192, density) for density in (0.25, 0.1)),
        *(Case(512, 4608, 3136, density) for density in (0.5, 0.25)),
        Case(512, 2048, 4096, 0.25),
        Case(256, 2304, 12544, 0.25),
        *(Case(4096, 4096, 4096, 0.25, kept) for kept in ("equal", "lognormal", "one-full")),
    ]
    return [case._replace(whole=whole) for case in split for whole in (False, True)]


def full_cases() -> list[Case]:
    """Every case that a goal speaks of."""
    cases = [Case(*layer, density) for layer in LAYERS for density in (0.5, 0.25, 0.1)]
    cases += [Case(*layer, 1.0) for layer in LARGE]
    cases += [Case(4096, 4096, 4096, 0.25, kept) for kept in SKEWED]
    return [*_both_heights(cases), Case(4096, 4096, 4096, 0.92), Case(11008, 4096, 16, 0.25)]


def _both_heights(cases: Iterable[Case]) -> list[Case]:
    return [case._replace(rows=rows) for case in cases for rows in TILE_ROWS]


def tile_map(case: Case) -> TileMap:
    """Tiles of `case.rows` rows with random kept columns; the same case gives the same map everywhere."""
    seed = [case.m, case.k, round(1000 * case.density)]
    rng = np.random.default_rng(seed if case.rows == TILE_ROWS[0] else [*seed, case.rows])
    row_start = np.minimum(np.arange(-(-case.m // case.rows) + 1) * case.rows, case.m)
    counts = _kept_counts(case, row_start.size - 1, rng)
    columns = [np.sort(rng.permutation(case.k)[:kept]) for kept in counts]
    return TileMap(
        m=case.m,
        k=case.k,
        row_start=row_start,
        row_index=np.arange(case.m),
        column_start=np.concatenate(([0], np.cumsum(counts))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{case.rows}",
    )


def _kept_counts(case: Case, tiles: int, rng: np.random.Generator) -> np.ndarray:
    """Kept columns of each tile; the totals of all kinds are those of `equal`."""
    equal = round(case.k * case.density)
    if case.kept == "lognormal":
        weight = rng.lognormal(0.0, 0.8, tiles)
    elif case.kept == "ramp":
        weight = np.arange(1, tiles + 1, dtype=float)
    elif case.kept == "one-full":
        weight = np.full(tiles, (equal * tiles - case.k) / (tiles - 1))
        weight[0] = case.k
    else:
        return np.full(tiles, equal)
    return _scaled(weight, equal * tiles, case.k)


def _scaled(weight: np.ndarray, total: int, most: int) -> np.ndarray:
    """Integers in proportion to `weight`, none above `most`, that add up to `total`."""
    low, high = 0.0, total / weight.min()
    for _ in range(200):
        middle = (low + high) / 2
        enough = np.minimum(np.floor(weight * middle), most).sum() >= total
        low, high = (low, middle) if enough else (middle, high)
    counts = np.minimum(np.floor(weight * high), most).astype(np.int64)
    partial = np.flatnonzero(counts < most)  # a full tile stays full
    heaviest = partial[np.argsort(-counts[partial], kind="stable")]
    counts[heaviest[: counts.sum() - total]] -= 1
    return counts


def plans_of(cases: list[Case], file: Path | None) -> dict[str, KernelPlan]:
    """Plans by name of the case, from the file or from the planner."""
    if file is None:
        return {case.name: _plan(case) for case in cases}
    with np.load(file, allow_pickle=False) as stored:
        return {case.name: _restore(case, stored) for case in cases}


def _plan(case: Case) -> KernelPlan:
    return plan_stspmm(tile_map(case), case.n, "fp16", GPU, split=None if case.whole else "auto")


def _restore(case: Case, stored: np.lib.npyio.NpzFile) -> KernelPlan:
    if f"{case.name}/form" not in stored:
        raise BadInput(f"the file of plans has no case {case.name!r}")
    block_m, block_n, schedule, blocks, cluster = (int(x) for x in stored[f"{case.name}/form"])
    variants = wgmma_configs(GPU, "fp16", "wgmma")
    variant = next(v for v in variants if v.shape[:2] == (block_m, block_n))
    work = WorkList(*(stored[f"{case.name}/{column}"] for column in WorkList._fields))
    assigned = Assigned(work, Schedule(schedule), blocks)
    tiles = cut_rows(tile_map(case), block_m)
    return tile_plan("stspmm", tiles, case.n, variant, assigned, GPU, k_order="gather", cluster=cluster)


def write_plans(file: Path) -> None:
    """Plan all cases and keep their work lists and forms in `file`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    columns = {}
    for name, plan in plans_of([*full_cases(), *quick_cases(), *split_cases()], None).items():
        form = [plan.shape.block_m, plan.shape.block_n, int(plan.schedule), plan.blocks, plan.cluster]
        columns[f"{name}/form"] = np.array(form)
        columns.update({f"{name}/{field}": getattr(plan.work, field) for field in WorkList._fields})
    np.savez_compressed(file, **columns)
