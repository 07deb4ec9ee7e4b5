"""Cases of `gpu_mma`, and on any machine what it then only loads: cubins, plans, predictions.

    python -m benchmarks.gpu_mma_cases build/gpu_mma

writes into that folder cubin/, plans.npz and prepared.json. Plans are made for the H200 as if it had no
wgmma; predictions are made here, before the run.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.gpu_cases import GPU, LAYERS, TILE_ROWS, Case, tile_map
from prunecast.hardware import load_gpu
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KernelPlan, Schedule, WorkList, plan_dense, plan_stspmm
from prunecast.kernels.cuda.mma.forms import PARTS, has_async_copies, mma_defines
from prunecast.kernels.tile.choose_tiles import tile_candidates
from prunecast.kernels.tile.config import TileConfig
from prunecast.kernels.tile.mma_configs import mma_configs, register_configs
from prunecast.kernels.tile.tile_plan import items_of, tile_plan
from prunecast.patterns import TileMap
from prunecast.plan.order import Assigned, assign_hardware, assign_stream_k
from prunecast.plan.tile_rows import cut_rows

__all__ = [
    "ARCH",
    "DENSITIES",
    "VARIANTS",
    "Check",
    "Timed",
    "build_all",
    "cases",
    "changes_of",
    "check_plan",
    "checks",
    "ending_checks",
    "guarded_checks",
    "plans_from",
    "ragged_map",
    "timed_variants",
]

ARCH = "sm_90a"
DENSITIES = (0.5, 0.25, 0.1)
FORMS_PER_CASE = 2
KEPT = (0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 700, 300)
CHECK_K = 708
VARIED_DENSITY = 0.25
VARIANTS: dict[str, dict[str, int]] = {
    "": {},
    "3 slots": {"STAGES": 3},
    "other sets": {"PIPELINED": -1},
    "no pdl": {},
}
"""Contestants by what differs from the plan's form, -1 for the other choice; `no pdl` by its launch."""


class Check(NamedTuple):
    """One product on a ragged map."""

    form: tuple[int, int]
    dtype: str
    n: int
    blocks: int
    gpu: str = "a100-sxm4-80gb"
    """Whose plan it is."""

    @property
    def name(self) -> str:
        """Unique among the checks."""
        return f"{self.form[0]}x{self.form[1]} {self.dtype} N={self.n} blocks={self.blocks} {self.gpu}"


class Timed(NamedTuple):
    """A plan that is timed, and what the simulator says of it."""

    name: str
    plan: KernelPlan
    predicted_us: float


def cases() -> list[Case]:
    """All layers, densities and heights of tiles; large layers first."""
    return [
        Case(*layer, density, rows=rows) for layer, density, rows in product(LAYERS, DENSITIES, TILE_ROWS)
    ]


# ---- checks


def ragged_map(block_m: int, seed: int) -> TileMap:
    """A tile for every count of `KEPT`, rows shuffled, a short last tile, rows in no tile, unread columns."""
    rng = np.random.default_rng(seed)
    heights = np.full(len(KEPT), block_m)
    heights[-1] = block_m // 2 + 3
    m = int(heights.sum()) + 5
    columns = [np.sort(rng.permutation(CHECK_K - 8)[:kept]) for kept in KEPT]
    return TileMap(
        m=m,
        k=CHECK_K,
        row_start=np.concatenate(([0], np.cumsum(heights))),
        row_index=rng.permutation(m)[: m - 5],
        column_start=np.concatenate(([0], np.cumsum(KEPT))),
        column_index=np.concatenate(columns),
        pattern=f"tile-wise:{block_m}",
    )


def checks() -> Iterator[Check]:
    """Every form of plans for an A100 and a T4 that runs here, split and whole; three slots too."""
    for form, dtype, n, blocks in product(PARTS, ("fp16", "bf16"), (8, 203, 1032), (0, 13, 100)):
        yield Check(form, dtype, n, blocks)
    for variant in _variants("t4"):
        for n, blocks in product((200, 1032), (0, 13)):
            yield Check(variant.shape[:2], "fp16", n, blocks, "t4")
    for form, n in product(((128, 128), (64, 64)), (200, 1032)):
        yield Check(form, "bf16", n, 13, "rtx-3090")


def guarded_checks() -> Iterator[Check]:
    """With the build that traps where the plain one would hang; these come first."""
    for form in PARTS:
        yield Check(form, "fp16", 200, 13)
    yield Check((64, 64), "fp16", 200, 13, "t4")


def ending_checks() -> Iterator[Check]:
    """For bias and activations."""
    for form, dtype in product(((128, 256), (128, 128), (64, 64)), ("fp16", "bf16")):
        yield Check(form, dtype, 203, 13)
    yield Check((128, 128), "fp16", 203, 13, "t4")


def check_plan(check: Check) -> KernelPlan:
    """One item per block, or equal shares of all k-steps, cut where they end."""
    variant = next(v for v in _variants(check.gpu, check.dtype) if v.shape[:2] == check.form)
    tiles, gpu = ragged_map(check.form[0], seed=check.n), load_gpu(check.gpu)
    items = items_of(tiles, variant, check.n, gpu)
    assigned = assign_stream_k(items, check.blocks, 32) if check.blocks else assign_hardware(items)
    return tile_plan("stspmm", tiles, check.n, variant, assigned, gpu, k_order="gather")


def _variants(gpu: str, dtype: str = "fp16") -> list[TileConfig]:
    spec = load_gpu(gpu)
    return list((mma_configs if spec.has_async_copy else register_configs)(spec, dtype, "mma"))


# ---- what is timed


def _plans(case: Case) -> list[KernelPlan]:
    """The planner's first forms, on an H200 without wgmma."""
    tiles = tile_map(case)
    fit = [v for v in mma_configs(GPU, "fp16", "mma") if occupancy(v.resources, GPU).blocks_per_sm]
    low = [v for v in fit if v.shape.block_m <= case.rows]
    found = tile_candidates(low, tiles, case.n, GPU, persistent=True, divisible=True)
    return [plan_stspmm(tiles, case.n, "fp16", GPU, config=form.config) for form in found[:FORMS_PER_CASE]]


def timed_variants(case: Case, plan: KernelPlan, place: int) -> dict[str, KernelPlan]:
    """The plan and, for the first of one density, what it is compared with."""
    names = VARIANTS if case.density == VARIED_DENSITY and place == 0 else {"": {}}
    return {name: _with_slots(plan, VARIANTS[name].get("STAGES", plan.resources.stages)) for name in names}


def _with_slots(plan: KernelPlan, slots: int) -> KernelPlan:
    stage = 64 * (plan.shape.block_m + plan.shape.block_n)
    shared = plan.resources.shared_bytes + (slots - plan.resources.stages) * stage
    return replace(plan, resources=plan.resources._replace(stages=slots, shared_bytes=shared))


def changes_of(plan: KernelPlan, variant: str) -> dict[str, int]:
    """Preprocessor names of a variant that are no part of a plan."""
    found = {name: value for name, value in VARIANTS[variant].items() if name != "STAGES"}
    if "PIPELINED" in found:
        found["PIPELINED"] = 1 - mma_defines(plan)["PIPELINED"]
    return found


def plans_from(folder: Path, case: Case) -> list[Timed]:
    """What was prepared for a case, with the very work lists that the planner made."""
    said = json.loads((folder / "prepared.json").read_text())["cases"][case.name]
    with np.load(folder / "plans.npz", allow_pickle=False) as stored:
        return [
            Timed(f"{form['block_m']}x{form['block_n']}", _restored(case, place, stored), form["us"])
            for place, form in enumerate(said["forms"])
        ]


def _restored(case: Case, place: int, stored: Any) -> KernelPlan:
    own = f"{case.name}/{place}"
    block_m, block_n, schedule, blocks = (int(x) for x in stored[f"{own}/form"])
    variant = next(v for v in mma_configs(GPU, "fp16", "mma") if v.shape[:2] == (block_m, block_n))
    work = WorkList(*(stored[f"{own}/{column}"] for column in WorkList._fields))
    tiles = cut_rows(tile_map(case), block_m)
    return tile_plan(
        "stspmm", tiles, case.n, variant, Assigned(work, Schedule(schedule), blocks), GPU, k_order="gather"
    )


# ---- preparation


def _columns(case: Case, plans: list[KernelPlan]) -> dict[str, np.ndarray]:
    columns = {}
    for place, plan in enumerate(plans):
        form = [plan.shape.block_m, plan.shape.block_n, int(plan.schedule), plan.blocks]
        columns[f"{case.name}/{place}/form"] = np.array(form)
        columns.update({f"{case.name}/{place}/{f}": getattr(plan.work, f) for f in WorkList._fields})
    return columns


def _predicted(case: Case, plans: list[KernelPlan]) -> dict[str, Any]:
    from prunecast.simulator import simulate

    dense = plan_dense(case.m, case.k, case.n, "fp16", GPU)
    return {
        "dense_us": simulate(dense, GPU).seconds * 1e6,
        "forms": [
            {
                "block_m": plan.shape.block_m,
                "block_n": plan.shape.block_n,
                "us": simulate(plan, GPU).seconds * 1e6,
            }
            for plan in plans
        ],
    }


def _prepared(case: Case) -> tuple[list[KernelPlan], dict[str, Any]]:
    plans = _plans(case)
    return plans, _predicted(case, plans)


def _builds(timed: dict[str, list[KernelPlan]]) -> Iterator[dict[str, int]]:
    """Defines of all that the run asks for; the same form may come many times."""
    yield from map(mma_defines, map(check_plan, checks()))
    yield from (mma_defines(plan, changes={"GUARD": 1}) for plan in map(check_plan, guarded_checks()))
    for plan, activation in product(map(check_plan, ending_checks()), ("none", "relu", "gelu")):
        yield mma_defines(plan, activation=activation, bias=True)
    for case in cases():
        for place, plan in enumerate(timed[case.name]):
            for variant, changed in timed_variants(case, plan, place).items():
                yield mma_defines(changed, changes=changes_of(changed, variant))


def build_all(builds: Iterable[dict[str, int]], folder: Path) -> int:
    """Compile forms of the kernel by their defines, each once; how many there are."""
    from prunecast.kernels.cuda.build import KernelBuildError, compile_cubin
    from prunecast.kernels.cuda.mma.forms import MMA_SOURCE

    forms = {json.dumps(defines, sort_keys=True): defines for defines in builds}

    def build(defines: dict[str, int]) -> bool:
        try:
            compile_cubin(MMA_SOURCE, ARCH, defines, allow_spills="GUARD" in defines, folder=folder)
        except KernelBuildError as reason:
            print(f"left out: {reason}")
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(build, forms.values()))


def main() -> None:
    """Write all of it into the folder named on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        found = dict(zip([case.name for case in cases()], pool.map(_prepared, cases()), strict=True))
    columns: dict[str, np.ndarray] = {}
    for case in cases():
        columns.update(_columns(case, found[case.name][0]))
    np.savez_compressed(folder / "plans.npz", **columns)
    said = {"cases": {name: predicted for name, (_, predicted) in found.items()}}
    (folder / "prepared.json").write_text(json.dumps(said, indent=1))
    built = build_all(_builds({name: plans for name, (plans, _) in found.items()}), folder / "cubin")
    print(f"{built} cubins, {len(found)} cases")
    assert all(has_async_copies(plan) for plans, _ in found.values() for plan in plans)


if __name__ == "__main__":
    main()
