"""What a k16 and a launch of the kernel for few tokens take, by form, tokens and blocks, on an H200.

    PRUNECAST_CACHE=build/steps python -m benchmarks.gpu_small_steps build    without a GPU: cubins
    PRUNECAST_CACHE=build/steps python -m benchmarks.gpu_small_steps run --out DIR

Made-up tiles that all keep as many random columns. *Steps*: 32 blocks, or two to an SM, at two lengths, so
that the difference is steps alone; for every number of tokens that changes how rows are copied. *Launches*:
one to a few steps, by the number of blocks, with inputs rotated over twice the L2 and with the same in every
launch (`warm`). Bursts. Writes DIR/small_steps.json.
"""

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.stamps.products import GPU, made_up_tiles
from prunecast.kernels import KernelPlan
from prunecast.kernels.small_n.configs import SmallConfig
from prunecast.kernels.small_n.planner import plan_small_n

TURNS = 4


class Point(NamedTuple):
    """A launch of equal blocks."""

    kind: str
    """`steps`, `launches` or `more`."""
    form: SmallConfig
    n: int
    blocks: int
    columns: int
    """That each block keeps."""
    k: int

    @property
    def plan(self) -> KernelPlan:
        """One tile to a block."""
        kept = np.full(self.blocks, self.columns)
        tiles = made_up_tiles(self.form.block_m, kept, self.k, np.random.default_rng(7))
        return plan_small_n(tiles, self.n, "fp16", GPU, config=self.form)


def points(table: str = "both") -> list[Point]:
    """Launches and steps in turn, so that time that runs out leaves some of both; or another table."""
    if table == "more":
        return list(_more_points())
    if table == "short-rows":
        return list(_step_points(((32, SHORT_ROWS), (104, SHORT_ROWS))))
    steps = list(_step_points(((32, STEPS), (2 * GPU.sm_count, CROWDED))))
    launches = list(_launch_points())
    both = [(place / len(found), point) for found in (steps, launches) for place, point in enumerate(found)]
    return [point for _, point in sorted(both, key=lambda one: one[0])]


STEPS = {
    (32, 32, 2, 16): (17, 18, 20, 24, 28, 32),
    (32, 64, 2, 16): (40, 48, 56, 64),
    (32, 64, 6, 8): (36, 49, 50, 64),
    (64, 16, 2, 16): (9, 10, 12, 16),
    (64, 8, 4, 16): (1, 2, 4, 5, 7, 8),
    (32, 32, 6, 8): (20, 24, 32),
    (16, 64, 6, 8): (40, 48, 56, 64),
    (64, 16, 6, 8): (10, 12, 16),
    (64, 8, 6, 8): (1, 5, 8),
    (16, 16, 2, 16): (12, 16),
    (16, 8, 2, 16): (1, 5, 8),
}
"""Rows, tokens, depth and warps of a form -> tokens in all."""
CROWDED = {(16, 8, 2, 16): (1, 5, 8), (32, 8, 2, 16): (1,), (16, 16, 2, 16): (16,), (64, 8, 2, 16): (1,)}
"""The same with two blocks to an SM."""
ROUNDS = (5, 15)
"""K16s of a warp."""
StepTables = tuple[tuple[int, dict[tuple[int, int, int, int], tuple[int, ...]]], ...]
"""Blocks, and forms with their tokens."""


SHORT_ROWS = {
    (16, 16, 2, 16): (9, 10, 11, 12, 13, 15, 16),
    (16, 32, 2, 16): (17, 20, 24, 28, 32),
    (16, 8, 2, 16): (1, 3, 4, 6, 7, 8),
    (32, 32, 4, 4): (27, 28, 32),
}
"""Steps of forms of few rows, with 32 and with 104 blocks."""


def _step_points(tables: StepTables) -> Iterator[Point]:
    for blocks, chosen in tables:
        for sizes, tokens in chosen.items():
            form = SmallConfig(*sizes)
            for n in tokens:
                for rounds in ROUNDS:
                    yield Point("steps", form, n, blocks, 16 * form.warps * rounds, 4096)


LAUNCHES = {
    (64, 8, 4, 16, 1): ((16, 64, 66, 72, 80, 96, 112, 128, 132), (256, 896, 2048)),
    (64, 16, 6, 8, 12): ((16, 64, 80, 96, 128), (64, 128, 512)),
    (32, 32, 2, 16, 32): ((16, 64, 80, 96, 128), (256, 1024)),
    (64, 8, 6, 8, 5): ((64, 80, 128), (64, 128)),
    (16, 16, 2, 16, 16): ((64, 132, 192, 264), (77, 256)),
    (16, 8, 2, 16, 1): ((64, 132, 192, 264), (77, 256)),
}
"""Rows, tokens, depth and warps of a form, and tokens in all -> blocks, columns."""


MORE = {
    (32, 32, 4, 8, 32): ((172, 264, 344, 396), (128, 410, 1024)),
    (64, 16, 4, 8, 16): ((92, 132, 172, 264), (256, 1024)),
    (32, 16, 6, 8, 16): ((264, 344, 396), (128, 410)),
    (64, 64, 4, 4, 64): ((132, 172, 264), (256, 1024)),
    (64, 64, 4, 4, 33): ((64, 132, 216), (256, 1024)),
    (16, 64, 6, 8, 33): ((56,), (192, 896)),
    (64, 8, 2, 16, 1): ((144, 216, 264), (512, 2048)),
    (32, 8, 4, 8, 8): ((264, 432, 528), (512, 2048)),
    (64, 16, 2, 16, 12): ((112, 132), (2048, 8192)),
    (64, 8, 4, 16, 2): ((112, 132), (8192,)),
    (16, 32, 2, 16, 24): ((64, 128), (1024, 4096)),
}
"""The same of launches with several blocks to an SM, and of long ones."""


def _more_points() -> Iterator[Point]:
    for (*sizes, n), (blocks, columns) in MORE.items():
        for count in blocks:
            for kept in columns:
                yield Point("more", SmallConfig(*sizes), n, count, kept, max(2560, kept))


def _launch_points() -> Iterator[Point]:
    for (*sizes, n), (blocks, columns) in LAUNCHES.items():
        for count in blocks:
            for kept in columns:
                yield Point("launches", SmallConfig(*sizes), n, count, kept, 2560)


def build(wanted: list[Point]) -> None:
    """Cubins of all forms."""
    from benchmarks.own_kernels import build_beside
    from prunecast.kernels.cuda.forms import ARCH
    from prunecast.kernels.cuda.small.forms import build_small, small_defines

    build_beside()
    plans = {(point.form, point.n): point.plan for point in wanted}
    unlike = {tuple(small_defines(plan).items()): plan for plan in plans.values()}
    with ProcessPoolExecutor() as pool:
        jobs = [pool.submit(build_small, plan, ARCH, dict(defines)) for defines, plan in unlike.items()]
        print(len([job.result() for job in jobs]), "forms")


def run(wanted: list[Point], out: Path, seconds: float) -> None:
    """Time every point while time is left."""
    import cupy as cp

    from prunecast.validation.measure.clock_probe import ClockProbe
    from prunecast.validation.measure.inputs import random_pool

    began, rows = time.perf_counter(), []
    stream, probe = cp.cuda.Stream(non_blocking=True), ClockProbe()
    pool, outputs = random_pool(40_000_000, "fp16"), cp.empty(40_000_000, cp.float16)
    host = np.random.default_rng(11).standard_normal(70_000_000, dtype=np.float32)
    for point in wanted:
        if time.perf_counter() - began > seconds:
            print("out of time at", point)
            break
        with stream:
            rows.append(_timed(point, host, pool, outputs, stream, probe))
        stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()
        print(rows[-1], flush=True)
    (out / "small_steps.json").write_text(json.dumps(rows))
    print(f"{time.perf_counter() - began:.0f} s")


def _timed(point: Point, host: Any, pool: Any, outputs: Any, stream: Any, probe: Any) -> dict[str, Any]:
    from prunecast.kernels.cuda.small.operator import compile_small
    from prunecast.validation.measure.inputs import Inputs
    from prunecast.validation.measure.timing import capture, take_turns

    plan = point.plan
    weights = host[: plan.m * plan.k].reshape(plan.m, plan.k)
    inputs = Inputs(weights, plan.m, plan.k, plan.n, "fp16", pool, outputs)
    sets = inputs.sets(2.0 * plan.m * point.columns)
    first = compile_small(plan, weights)
    every = [first, *(first.copy() for _ in range(sets - 1))]
    found = [capture("cold", stream, lambda i: every[i](inputs.b(i), out=inputs.c(i)), sets)]
    if point.kind != "steps":
        found.append(capture("warm", stream, lambda _: first(inputs.b(0), out=inputs.c(0)), sets))
    samples = take_turns(stream, found, TURNS, probe)
    row = {**point._asdict(), "form": list(point.form), "sets": sets, "fingerprint": plan.fingerprint()}
    for name, sample in samples.items():
        row[f"{name}_us"] = round(1e6 * float(np.median(sample.seconds)), 4)
        row[f"{name}_mhz"] = round(float(np.median(sample.clock_mhz)), 1)
    return row


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("build", "run"))
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=80.0)
    parser.add_argument(
        "--table",
        choices=("both", "more", "short-rows"),
        default="both",
        help="steps and launches; several blocks to an SM and long launches; or forms of few rows",
    )
    options = parser.parse_args()
    wanted = points(options.table)
    build(wanted) if options.what == "build" else run(wanted, options.out, options.seconds)


if __name__ == "__main__":
    main()
