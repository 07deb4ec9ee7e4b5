"""Measure the layers of a draw on which both engines part, and as many others, on this GPU.

python -m benchmarks.on_gpu.agreement OUT.csv [--gpu h200-sxm] [--first 0] [--cases 100] [--apart 0.06]
    [--others 40] [--processes 16] [--seconds 300]

`benchmarks.agreement` says how far closed form and simulator are apart, this says which of them is right.
Layers have cold operands and are timed in bursts, each after a check of its result against float64.
"""

import argparse
import csv
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np

from benchmarks.agreement import SINGLE, Case, Pair, drawn, pairs
from prunecast.errors import BadInput
from prunecast.kernels.device.build import KernelBuildError
from prunecast.validation.measure.contestants import (
    kernel_runners,
    largest_excess,
    layer_inputs,
    random_pool,
)
from prunecast.validation.measure.libraries import CublasProduct
from prunecast.validation.measure.sources import OUTPUT_BYTES, POOL_ELEMENTS
from prunecast.validation.measure.timing import burst_timer, capture

TURNS = 7
"""How often each layer is timed; the median counts. Kind: choice."""
COLUMNS = (
    *("kernel", "dtype", "m", "k", "n", "height", "density", "shape", "seed", "config"),
    *("closed_form_us", "simulated_us", "measured_us", "spread", "clock_mhz", "excess"),
)


def chosen(found: list[Pair], apart: float, others: int) -> list[Pair]:
    """Return pairs of times that are more than `apart` from each other, and `others` random ones."""
    far = [pair for pair in found if not pair.within(apart)]
    near = [pair for pair in found if pair.within(apart)]
    return far + random.Random(0).sample(near, min(others, len(near)))


class Bench:
    """Stream, timer, cuBLAS handle, and buffers from which all layers take their operands."""

    def __init__(self, dtype: str, cases: list[Case]) -> None:
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.timer = burst_timer(self.stream)
        self.dense = CublasProduct(self.stream, dtype)
        largest = max(max(case.m, case.n) * case.k for case in cases)
        self.pool = random_pool(max(POOL_ELEMENTS, 2 * largest), dtype)
        self.outputs = cp.empty(OUTPUT_BYTES, cp.uint8).view(self.pool.dtype)

    def row(self, pair: Pair) -> dict[str, Any]:
        """Check and time the kernel of a layer. Of both layouts of B for cuBLAS, the faster one counts.

        Raises
        ------
        BadInput, KernelBuildError : the kernel does not run the layer on this GPU
        """
        case = pair.case
        kept = case.kept()
        inputs = layer_inputs(case.m, case.k, case.n, case.dtype, self.pool, self.outputs)
        runners = kernel_runners(case.kernel, case.plan, kept, inputs, self.stream, self.dense)
        excess = largest_excess(runners, case.kernel, kept, inputs)
        captured = [capture(runner.config, self.stream, runner.launch, runner.sets) for runner in runners]
        samples = self.timer.take_turns(captured, TURNS)
        config, sample = min(samples.items(), key=lambda item: item[1].median)
        low, middle, high = np.quantile(sample.seconds, (0.1, 0.5, 0.9))
        return {
            **{name: getattr(case, name) for name in COLUMNS[:9]},
            "config": config,
            "closed_form_us": f"{1e6 * pair.closed_form:.3f}",
            "simulated_us": f"{1e6 * pair.simulated:.3f}",
            "measured_us": f"{1e6 * middle:.3f}",
            "spread": f"{(high - low) / middle:.3f}",
            "clock_mhz": f"{np.median(sample.clock_mhz):.0f}",
            "excess": f"{excess:.2f}",
        }


def measured(found: list[Pair], seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the row of each layer that this GPU runs; after `seconds`, no further layer is started."""
    began, benches = time.perf_counter(), dict[str, Bench]()
    for pair in found:
        if time.perf_counter() - began > seconds:
            print(f"out of time before {pair.line()}")
            return
        if pair.case.dtype not in benches:
            benches[pair.case.dtype] = Bench(pair.case.dtype, [other.case for other in found])
        bench = benches[pair.case.dtype]
        try:
            with bench.stream:
                yield bench.row(pair)
        except (BadInput, KernelBuildError, MemoryError, RuntimeError, OSError) as reason:
            print(f"skipped {pair.line()}: {' '.join(str(reason).split())[:120]}")
        bench.stream.synchronize()
        cp.get_default_memory_pool().free_all_blocks()


def summary(rows: list[dict[str, Any]], apart: float) -> Iterator[str]:
    """Yield the mean errors of both engines for layers beyond `apart` and for others, by kernel."""
    yield f"{'kernel':>14} {'apart':>5} {'cases':>5} {'closed form %':>13} {'simulator %':>11}"
    for kernel in sorted({row["kernel"] for row in rows}):
        for far in (True, False):
            own = [row for row in rows if row["kernel"] == kernel and _is_far(row, apart) == far]
            if own:
                errors = [
                    100 * np.mean([abs(float(row[name]) / float(row["measured_us"]) - 1) for row in own])
                    for name in ("closed_form_us", "simulated_us")
                ]
                yield f"{kernel:>14} {far!s:>5} {len(own):5d} {errors[0]:13.1f} {errors[1]:11.1f}"


def _is_far(row: dict[str, Any], apart: float) -> bool:
    times = float(row["closed_form_us"]), float(row["simulated_us"])
    return max(times) > (1 + apart) * min(times)


def main() -> None:
    """Draw, time by both engines, choose, measure, write and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", default="h200-sxm", help="spec of this GPU")
    parser.add_argument("--kernels", nargs="*", default=list(SINGLE), choices=SINGLE)
    parser.add_argument("--first", type=int, default=0, help="seed of the first draw")
    parser.add_argument("--cases", type=int, default=100, help="draws of each kernel")
    parser.add_argument("--apart", type=float, default=0.06, help="layers beyond it are all measured")
    parser.add_argument("--others", type=int, default=40, help="other layers that are measured")
    parser.add_argument("--processes", type=int, default=1, help="processes that share both engines' work")
    parser.add_argument("--seconds", type=float, default=300, help="no layer is measured later")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.cases)
    cases = [drawn(options.gpu, kernel, seed) for seed in seeds for kernel in options.kernels]
    found = chosen(pairs(cases, options.processes), options.apart, options.others)
    print(f"{len(found)} of {len(cases)} layers to measure", flush=True)
    rows = []
    with options.out.open("w", newline="") as lines:
        table = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        table.writeheader()
        for row in measured(found, options.seconds):
            rows.append(row)
            table.writerow(row)
            lines.flush()
    print(*summary(rows, options.apart), sep="\n")


if __name__ == "__main__":
    main()
