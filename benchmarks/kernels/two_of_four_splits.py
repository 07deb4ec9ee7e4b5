"""Splits of 2:4 products without wgmma: measured, beside what both engines predict.

    python -m benchmarks.kernels.two_of_four_splits OUT.csv [--cases 40]    # on a GPU with mma.sp, an H200

Layers of 128 to 2048 rows and columns and 16 to 1024 tokens run by `mma.sp`, as on an A100: with whole
tiles, in the k-slices that the planner finds with its cost of partial sums, and in those that it finds if
sums cost nothing. Of each the config counts that the closed form predicts as fastest. Results are checked
against float64 before a time counts; bursts, cold operands.
"""

import argparse
import csv
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec, load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.tile.configs import sparse_configs
from prunecast.kernels.two_of_four.kernel import plan_sparse_tensor, split_plan
from prunecast.models import estimate
from prunecast.patterns import parse_pattern, weigh
from prunecast.patterns.element_map import ElementMap
from prunecast.simulator import simulate
from prunecast.validation.measure.contestants import largest_excess, layer_inputs, own_runner, random_pool
from prunecast.validation.measure.sources import OUTPUT_BYTES, POOL_ELEMENTS
from prunecast.validation.measure.timing import burst_timer, capture

SIZES, TOKENS = (128, 256, 512, 1000, 1024, 2048), (16, 32, 64, 128, 256, 512, 1024)
SPLITS = {"none": None, "priced sums": True, "free sums": False}
"""How tiles are split -> whether the planner prices partial sums."""
TURNS = 7
"""How often each plan is timed; the median counts. Kind: choice."""
COLUMNS = (
    *("m", "k", "n", "split", "config", "k_slices"),
    *("closed_form_us", "simulated_us", "measured_us", "excess"),
)


class Layer(NamedTuple):
    """Rows and columns of the weights, tokens, and the seed of the weights."""

    m: int
    k: int
    n: int
    seed: int

    def elements(self) -> ElementMap:
        """Return the elements that 2:4 keeps of random weights."""
        pattern = parse_pattern("2:4")
        weights = np.random.default_rng(self.seed).standard_normal((self.m, self.k), np.float32)
        kept = pattern.map(pattern.prune({"a": weigh("a", weights)}, 0.5)["a"])
        assert isinstance(kept, ElementMap)
        return kept


def layers(count: int) -> Iterator[Layer]:
    """Yield layers of random sizes."""
    draw = random.Random(5)
    for seed in range(count):
        yield Layer(draw.choice(SIZES), draw.choice(SIZES), draw.choice(TOKENS), seed)


def plans(layer: Layer, gpu: GpuSpec) -> dict[str, KernelPlan]:
    """Return the fastest plan of each kind of split by the closed form, without kinds that split nothing."""
    elements, found = layer.elements(), dict[str, list[KernelPlan]]()
    for config in sparse_configs(load_gpu("a100-sxm4-80gb"), "fp16", layer.m):
        try:
            whole = plan_sparse_tensor(elements, layer.n, "fp16", gpu, config)
        except BadInput:
            continue
        for name, priced in SPLITS.items():
            plan = whole if priced is None else split_plan(whole, config, gpu, priced=priced)
            if priced is None or plan.work.parts.max(initial=1) > 1:
                found.setdefault(name, []).append(plan)
    return {name: min(own, key=lambda plan: estimate(plan, gpu).seconds) for name, own in found.items()}


class Bench:
    """Stream, timer and buffers that all layers share."""

    def __init__(self) -> None:
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.timer = burst_timer(self.stream)
        self.pool = random_pool(POOL_ELEMENTS, "fp16")
        self.outputs = cp.empty(OUTPUT_BYTES, cp.uint8).view(self.pool.dtype)

    def rows(self, layer: Layer, gpu: GpuSpec) -> Iterator[dict[str, Any]]:
        """Yield a row for each kind of split of a layer, after its products were checked; none if nothing is
        split.
        """
        found = plans(layer, gpu)
        if len(found) == 1:
            return
        inputs = layer_inputs(layer.m, layer.k, layer.n, "fp16", self.pool, self.outputs)
        with self.stream:
            runners = {name: own_runner(plan, inputs) for name, plan in found.items()}
            kept = layer.elements()
            excess = {name: largest_excess([one], "2:4", kept, inputs) for name, one in runners.items()}
            assert max(excess.values()) <= 1.0, (layer, excess)
            captured = [capture(name, self.stream, one.launch, one.sets) for name, one in runners.items()]
            samples = self.timer.take_turns(captured, TURNS)
        self.stream.synchronize()
        for name, plan in found.items():
            seconds = estimate(plan, gpu).seconds, simulate(plan, gpu).seconds, samples[name].median
            times = (f"{1e6 * one:.2f}" for one in seconds)
            values = (*layer[:3], name, plan.config, plan.work.parts.max(), *times, f"{excess[name]:.2f}")
            yield dict(zip(COLUMNS, values, strict=True))


def main() -> None:
    """Draw, measure and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--gpu", default="h200-sxm", help="spec of this GPU")
    parser.add_argument("--cases", type=int, default=40)
    options = parser.parse_args()
    gpu, bench = load_gpu(options.gpu), Bench()
    with options.out.open("w", newline="") as lines:
        table = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        table.writeheader()
        for layer in layers(options.cases):
            for row in bench.rows(layer, gpu):
                table.writerow(row)
                print(*row.values(), flush=True)
            cp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
