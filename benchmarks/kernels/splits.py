"""The cost of splitting tiles along K: measured, beside what both engines predict.

    python -m benchmarks.kernels.splits --out DIR

Tiles of 128 rows keep a random quarter of the columns, as many in each tile. Every tile is one item, or is
split into slices of the same number of k-steps, whose partial sums are exchanged. Results are checked against
float64 before a time counts; bursts, cold L2. Writes DIR/splits.csv, a layer at a time.
"""

import argparse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.kernels.fp32_tiles import wrong_tiles
from prunecast.choice import product_of
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import compile
from prunecast.models import estimate
from prunecast.patterns import parse_pattern
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.simulator import simulate
from prunecast.validation.measure.rotation import rotating_sets

LAYERS = ((4224, 4096, 512), (2048, 4096, 256), (1024, 8192, 512))
SLICES = (1, 2, 4)
CONFIGS = ("128x128x64 s6", "128x256x64 s4")
TURNS = 7


class Case(NamedTuple):
    """A plan whose tiles are all split into as many slices."""

    plan: KernelPlan
    slices: int

    def row(self, us: float | None, gpu: GpuSpec) -> str:
        """Return the line of the table; `us` is the measured time, None where nothing was measured."""
        plan = self.plan
        times = (us, 1e6 * estimate(plan, gpu).seconds, 1e6 * simulate(plan, gpu).seconds)
        said = ("" if time is None else f"{time:.2f}" for time in times)
        return ",".join(map(str, (plan.m, plan.k, plan.n, plan.config, self.slices, *said)))


def cases(weights: np.ndarray, mask: np.ndarray, n: int, gpu: GpuSpec) -> Iterator[Case]:
    """Yield the plans of a layer, those with one item per tile first in every config."""
    tiles = parse_pattern("tile-wise:128").map(mask)
    steps = int(tiles.kept_per_tile.max()) // 64
    for config in product_of("stspmm", tiles, n, "fp16", gpu).configs():
        if str(config) in CONFIGS:
            for slices in SLICES:
                split = None if slices == 1 else -(-steps // slices)
                yield Case(product_of("stspmm", tiles, n, "fp16", gpu).plan(config, split=split), slices)


def layer_of(m: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random weights (M, K) in fp16 and their mask."""
    rng = np.random.default_rng(m)
    kept = np.argsort(rng.random((m // 128, k)), axis=1) < k // 4
    weights = rng.standard_normal((m, k)).astype(np.float16)
    return weights, np.repeat(kept, 128, axis=0)


def measure(layer: tuple[int, int, int], gpu: GpuSpec) -> list[str]:
    """Return a line for each case of a layer whose results are right."""
    import cupy as cp

    from benchmarks.on_gpu.timing import MOST_SETS, contestant, take_turns

    m, k, n = layer
    weights, mask = layer_of(m, k)
    found = list(cases(weights, mask, n, gpu))
    with ThreadPoolExecutor() as pool:
        operators = list(pool.map(lambda case: compile(case.plan, weights), found))
    sets = rotating_sets(2.0 * (m * k / 4 + k * n + m * n), most=MOST_SETS)
    bs = [cp.random.standard_normal((k, n), dtype=cp.float32).astype(cp.float16) for _ in range(sets)]
    pruned, stream, runs = cp.asarray(weights * mask), cp.cuda.Stream(non_blocking=True), []
    for number, (case, operator) in enumerate(zip(found, operators, strict=True)):
        wrong = wrong_tiles(case.plan, pruned, bs[0], operator(bs[0]), "fp16")
        print(f"{layer} {case.plan.config} in {case.slices}: {wrong} tiles wrong", flush=True)
        if not wrong:
            runs.append((f"{number}", lambda i, operator=operator: operator(bs[i])))
    with stream:
        timed = [contestant(name, stream, run, sets=sets) for name, run in runs]
        samples = take_turns(stream, timed, TURNS)
    return [found[int(name)].row(1e6 * sample.median, gpu) for name, sample in samples.items()]


def predictions(layer: tuple[int, int, int], gpu: GpuSpec) -> list[str]:
    """Return the lines of a layer without measured times."""
    m, k, n = layer
    return [case.row(None, gpu) for case in cases(*layer_of(m, k), n, gpu)]


def main() -> None:
    """Every layer, those that fail named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpu", default="h200-sxm", help="spec of the GPU that runs it")
    parser.add_argument("--predict", action="store_true", help="predictions only, without a GPU")
    options = parser.parse_args()
    gpu, lines = load_gpu(options.gpu), ["m,k,n,config,slices,us,model_us,simulator_us"]
    for layer in LAYERS:
        try:
            rows: Any = (predictions if options.predict else measure)(layer, gpu)
        except Exception as reason:  # whatever a library raises, the other layers go on
            print(f"{layer} left out: {type(reason).__name__} {str(reason)[:200]}", flush=True)
            continue
        lines += rows
        print("\n".join(rows), flush=True)
        (options.out / "splits.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
