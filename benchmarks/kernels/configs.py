"""Does the choice of a tile kernel's config give time away? Configs of one layer timed in turn on an H200.

    PRUNECAST_CACHE=build/configs python -m benchmarks.kernels.configs build [--drawn 24]   # no GPU needed
    PRUNECAST_CACHE=build/configs python -m benchmarks.kernels.configs run [--drawn 24] --out DIR
    python -m benchmarks.kernels.configs compare DIR/configs.json                           # no GPU needed

Bursts, inputs rotated over twice the L2; outputs are compared. `run` writes DIR/configs.json; `compare` lists
what both engines predict for each config and how much slower the config is that each would choose.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.on_gpu.plans import GPU
from benchmarks.suite import build as build_cubin
from benchmarks.tile.cases import Case, tile_map
from prunecast.choice import configs_of
from prunecast.kernels import KernelPlan, plan_stspmm
from prunecast.models import estimate
from prunecast.simulator import simulate

MOST_CONFIGS, FEWEST_CONFIGS = 5, 3
WORTH_TIMING = 1.3
"""Estimated seconds over those of the fastest config."""
ROWS = (128, 256, 384, 512, 768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 4864, 5120, 6144)
COLUMNS = (256, 384, 512, 768, 896, 1024, 1280, 1536, 2048, 2560, 3072, 4096)
TOKENS = (96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 3136, 4096, 6272, 8192, 12544)
DENSITIES = (0.04, 0.08, 0.12, 0.16, 0.2, 0.25, 0.3, 0.4, 0.5, 0.65)
MOST_FMA, MOST_BYTES = 1.2e10, 6e7
"""A drawn product takes 40 us at most, and its B and C fit in the time of a run."""
SEED = 20261122


def plans_of(case: Case) -> list[KernelPlan]:
    """Plans of the configs that the closed form finds fastest, or not much slower."""
    tiles = tile_map(case)
    configs = configs_of("stspmm", tiles, case.n, "fp16", GPU)
    plans = [plan_stspmm(tiles, case.n, "fp16", GPU, config) for config in configs]
    seconds = {id(plan): estimate(plan, GPU).seconds for plan in plans}
    plans.sort(key=lambda plan: seconds[id(plan)])
    return [p for p in plans[:MOST_CONFIGS] if seconds[id(p)] <= WORTH_TIMING * seconds[id(plans[0])]]


def cases_of(drawn: int) -> list[Case]:
    """So many random layers with several close configs."""
    return list(islice((case for case in _draws() if len(plans_of(case)) >= FEWEST_CONFIGS), drawn))


def _draws() -> Iterator[Case]:
    rng = np.random.default_rng(SEED)
    while True:
        m, k, n = (int(rng.choice(sizes)) for sizes in (ROWS, COLUMNS, TOKENS))
        density, height = float(rng.choice(DENSITIES)), int(rng.choice((64, 128, 128, 128, 256)))
        kept = str(rng.choice(("equal", "equal", "equal", "lognormal", "ramp")))
        if m > height and m * k * n * density <= MOST_FMA and 2 * n * (m + k) <= MOST_BYTES:
            yield Case(m, k, n, density, kept, rows=height)


def run(cases: list[Case], out: Path, seconds: float) -> None:
    """Time every case while time is left."""
    from benchmarks.on_gpu.alike import run_cases

    run_cases(cases, out / "configs.json", seconds, _time)


def _time(case: Case, stream: Any) -> dict[str, Any]:
    from benchmarks.on_gpu.alike import time_alike

    plans = plans_of(case)
    samples = time_alike(case, {str(number): plan for number, plan in enumerate(plans)}, stream)
    rows = [_row(case, plan, samples[str(number)]) for number, plan in enumerate(plans)]
    return {**case._asdict(), "configs": rows}


def _row(case: Case, plan: KernelPlan, sample: Any) -> dict[str, Any]:
    mhz, us = float(np.median(sample.clock_mhz)), sample.median * 1e6
    name, items = config_name(plan), plan.item_count
    print(f"{case.name:40s} {name:8s} {items:5d} items {us:7.2f} us {mhz:5.0f} MHz", flush=True)
    return {"config": name, "items": items, "blocks": plan.blocks, "us": us, "mhz": mhz}


def config_name(plan: KernelPlan) -> str:
    """Rows and tokens of a block."""
    return f"{plan.shape.block_m}x{plan.shape.block_n}"


def compare(file: Path) -> None:
    """Errors of both engines on every timed config, and what each engine's choice loses."""
    losses = np.array([_losses(record) for record in json.loads(file.read_text())])
    for engine, loss in zip(("simulator", "closed form"), losses.T, strict=True):
        print(f"chosen by the {engine}: {100 * np.mean(loss):.2f} % lost, at worst {100 * loss.max():.1f} %")


def _losses(record: dict[str, Any]) -> list[float]:
    """Time lost by the choice of the simulator and of the closed form, as a share."""
    case = Case(**{key: record[key] for key in Case._fields})
    timed = {(row["config"], row["items"]): row for row in record["configs"]}
    us, predicted = [], []
    for plan in plans_of(case):
        row = timed.get((config_name(plan), plan.item_count))
        if row is None:
            continue
        seconds = (simulate(plan, GPU).seconds, estimate(plan, GPU).seconds)
        us.append(row["us"])
        predicted.append(seconds)
        errors = "  ".join(f"{100 * (1e6 * each / row['us'] - 1):+5.1f} %" for each in seconds)
        print(f"{case.name:40s} {config_name(plan):8s} {row['us']:7.2f} us  {errors}")
    return [us[int(choice)] / min(us) - 1.0 for choice in np.argmin(predicted, axis=0)]


def main() -> None:
    """Build, run, or compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run", "compare"))
    parser.add_argument("file", type=Path, nargs="?", default=Path("configs.json"))
    parser.add_argument("--drawn", type=int, default=24, help="random layers")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    if options.what == "compare":
        compare(options.file)
    elif options.what == "build":
        for case in cases_of(options.drawn):
            for plan in plans_of(case):
                build_cubin(plan)
    else:
        run(cases_of(options.drawn), options.out, options.seconds)


if __name__ == "__main__":
    main()
