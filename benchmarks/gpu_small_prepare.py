"""Make on any machine what `gpu_small` then only loads: cubins, plans of the tile kernel, predictions.

    python -m benchmarks.gpu_small_prepare build/gpu_small

writes into that folder cubin/, plans.npz and prepared.json. Predictions are made here, before the run.
"""

import json
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_cases import GPU, Case, tile_map
from benchmarks.gpu_small_cases import (
    DENSITIES,
    ENDINGS,
    LAYERS,
    TOKENS,
    ending_plan,
    form_name,
    forms_of,
    layer_case,
    padded,
    plan_of_check,
    ragged_map,
    small_checks,
    timed_plan,
)
from prunecast.kernels import KernelPlan, WorkList, plan_dense, plan_stspmm
from prunecast.kernels.cuda.build import SOURCES, KernelBuildError, compile_cubin
from prunecast.kernels.cuda.forms import ARCH, build_fill, build_tile_kernel, tile_defines
from prunecast.kernels.cuda.small.forms import SMALL_SOURCE, small_defines
from prunecast.kernels.small_n.configs import HEIGHTS, SmallConfig
from prunecast.simulator import simulate

__all__ = ["build", "columns_of", "predict"]

Columns = dict[str, np.ndarray]


def build(plan: KernelPlan, folder: Path, *, activation: str = "none", bias: bool = False) -> bool:
    """Compile the form of a small-n plan into `folder`; False, and a line, where it must not be used."""
    try:
        kernel = compile_cubin(
            SMALL_SOURCE, ARCH, small_defines(plan, activation=activation, bias=bias), folder=folder
        )
    except KernelBuildError as reason:
        print(f"left out: {reason}")
        return False
    most = plan.resources.registers_per_thread
    if kernel.registers > most:
        print(f"left out: {plan.shape} {plan.resources} uses {kernel.registers} registers")
    return kernel.registers <= most


def predict(case: Case, forms: Iterable[SmallConfig]) -> dict[str, Any]:
    """What the simulator says of all contestants of a case, in microseconds."""
    tiles = tile_map(case)
    tile_plan = plan_stspmm(tiles, padded(case.n), "fp16", GPU)
    return {
        "dense_us": _us(plan_dense(case.m, case.k, case.n, "fp16", GPU)),
        "tile_us": _us(tile_plan),
        "forms": [
            {"form": list(form), "name": form_name(form), "us": _us(timed_plan(tiles, case.n, form))}
            for form in forms
        ],
    }


def _us(plan: KernelPlan) -> float:
    return simulate(plan, GPU).seconds * 1e6


def columns_of(case: Case, plan: KernelPlan) -> Columns:
    """A tile kernel's plan as arrays, as `gpu_cases.plans_of` reads them."""
    form = [plan.shape.block_m, plan.shape.block_n, int(plan.schedule), plan.blocks, plan.cluster]
    fields = {f"{case.name}/{field}": getattr(plan.work, field) for field in WorkList._fields}
    return {f"{case.name}/form": np.array(form), **fields}


def _built_forms(case: Case, folder: Path) -> list[SmallConfig]:
    tiles = tile_map(case)
    return [form for form in forms_of(case) if build(timed_plan(tiles, case.n, form), folder)]


def _tile_kernel(case: Case) -> Columns:
    """The plan for as many tokens as that kernel takes, and its cubins."""
    case = case._replace(n=padded(case.n))
    plan = plan_stspmm(tile_map(case), case.n, "fp16", GPU)
    build_tile_kernel(plan, tile_defines(plan))
    return columns_of(case, plan)


def _checks(folder: Path) -> list[dict[str, Any]]:
    maps = {height: ragged_map(height) for height in HEIGHTS}
    right = [c for c in small_checks() if build(plan_of_check(c, maps[c.form.block_m]), folder)]
    for n, activation in product((7, 16), ENDINGS):
        build(ending_plan(n), folder, activation=activation, bias=True)
    return [{"dtype": c.dtype, "n": c.n, "form": list(c.form)} for c in right]


def main() -> None:
    """Write all of it into the folder named on the command line."""
    import os

    folder = Path(sys.argv[1])
    cubins = folder / "cubin"
    os.environ["PRUNECAST_CACHE"] = str(cubins)  # the tile kernel's builders have no folder to be told
    compile_cubin(SOURCES / "fill_rows.cu", ARCH, {"BIAS": 0, "ACTIVATION": 0})
    build_fill("fp16", "none", bias=False)
    checks = _checks(cubins)
    cases = [layer_case(m, k, n, d) for (m, k), n, d in product(LAYERS, TOKENS, DENSITIES)]
    columns: Columns = {}
    for case in cases:
        columns.update(_tile_kernel(case))
    np.savez_compressed(folder / "plans.npz", **columns)
    forms = [_built_forms(case, cubins) for case in cases]
    print(f"{len(list(cubins.glob('*.cubin')))} cubins; {sum(map(len, forms))} plans to predict", flush=True)
    with ProcessPoolExecutor(2) as pool:
        predicted = list(pool.map(predict, cases, forms))
    named = [{**case._asdict(), **found} for case, found in zip(cases, predicted, strict=True)]
    (folder / "prepared.json").write_text(json.dumps({"checks": checks, "cases": named}, indent=1))


if __name__ == "__main__":
    main()
