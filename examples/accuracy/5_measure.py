"""Measures on an H200 every case of a study that has a kernel: all pruned layers in one graph, in bursts.

The tile maps are those of the trained weights, the numbers random. Each layer has inputs and outputs of its
own, so that nothing is in the L2 when its turn comes. Results are checked against float64 before any time.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import cupy as cp
import numpy as np
from study_plans import DTYPE, STUDIES, ways

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan, compile
from prunecast.kernels.device.build import KernelBuildError
from prunecast.patterns import ElementMap
from prunecast.validation.measure.clock_probe import ClockProbe
from prunecast.validation.measure.contestants import Runner, csr_runner, dense_runners
from prunecast.validation.measure.correct import largest_excess
from prunecast.validation.measure.inputs import Inputs, layer_inputs, random_pool
from prunecast.validation.measure.libraries import DenseProduct
from prunecast.validation.measure.timing import Contestant, capture, take_turns

GPU = "h200-sxm"
ELEMENTS = 500_000_000
"""In the pools of random inputs and of outputs; slices of them rotate."""
TURNS = 15
CHECKED_LAYERS = 6
"""Of each case: the first ones, which have all shapes."""


class Bench(NamedTuple):
    """What all cases share on the device."""

    stream: Any
    pool: Any
    outputs: Any
    dense: DenseProduct
    probe: ClockProbe
    layouts: dict[tuple[int, int, int], int]
    """Shape of a dense layer -> its faster layout, 0 or 1."""


def inputs_of(bench: Bench, plan: KernelPlan) -> Inputs:
    return layer_inputs(plan.m, plan.k, plan.n, DTYPE, bench.pool, bench.outputs)


def runner_of(bench: Bench, plan: KernelPlan) -> Runner:
    """One layer."""
    inputs = inputs_of(bench, plan)
    if plan.kernel == "dense":
        return dense_runners(inputs, bench.dense)[bench.layouts[(plan.m, plan.k, plan.n)]]
    if plan.kernel == "csr":
        return csr_runner(_elements(plan), inputs, bench.stream)
    operator = compile(plan, inputs.weights)
    return Runner(lambda i: operator(inputs.b(i), out=inputs.c(i)), 1, "")


def choose_layouts(bench: Bench, plans: list[KernelPlan]) -> None:
    """Time the dense product of every shape in both layouts."""
    for plan in {(plan.m, plan.k, plan.n): plan for plan in plans}.values():
        runners = dense_runners(inputs_of(bench, plan), bench.dense)
        both = [capture(runner.variant, bench.stream, runner.launch, runner.sets) for runner in runners]
        samples = take_turns(bench.stream, both, TURNS, bench.probe)
        medians = [float(np.median(samples[runner.variant].seconds)) for runner in runners]
        bench.layouts[(plan.m, plan.k, plan.n)] = int(np.argmin(medians))


def excess(bench: Bench, plan: KernelPlan, runner: Runner) -> float:
    """Largest error over its bound."""
    dense, csr = plan.kernel == "dense", plan.kernel == "csr"
    mask = None if dense else (plan.inner or plan.tiles).mask()
    most = plan.k if mask is None else int(mask.sum(axis=1).max(initial=1))
    return largest_excess(runner, mask, most, inputs_of(bench, plan), library=dense or csr)


def contestant(bench: Bench, name: str, plans: list[KernelPlan]) -> Contestant:
    """A graph of all layers, checked. Raises BadInput where a kernel is missing or wrong."""
    if plans[0].kernel == "dense":
        choose_layouts(bench, plans)
    runners = [runner_of(bench, plan) for plan in plans]
    worst = max(excess(bench, *pair) for pair in list(zip(plans, runners, strict=True))[:CHECKED_LAYERS])
    if not worst <= 1.0:
        raise BadInput(f"{name}: errors are {worst:.3g} times their bound")
    return capture(name, bench.stream, _in_turn([runner.launch for runner in runners]), 1)


def _in_turn(launches: list[Callable[[int], Any]]) -> Callable[[int], None]:
    def launch(_: int) -> None:
        for place, one in enumerate(launches):
            one(place)

    return launch


def _elements(plan: KernelPlan) -> ElementMap:
    tiles = plan.tiles
    return ElementMap(
        m=plan.m,
        k=plan.k,
        row_start=tiles.column_start,
        column_index=tiles.column_index,
        pattern=tiles.pattern,
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", choices=STUDIES, required=True)
    parser.add_argument("--maps", type=Path, required=True, help="folder with the maps of all cases")
    parser.add_argument("--out", type=Path, required=True, help="a JSON file")
    return parser.parse_args()


def prepare(bench: Bench, options: argparse.Namespace) -> list[Contestant]:
    """Contestants of all cases and kernels that can be run; what cannot is said."""
    found = []
    for case in STUDIES[options.study].cases:
        for kernel, plans in ways(options.study, case, options.maps, load_gpu(GPU)):
            name = f"{case.name} {kernel}"
            try:
                found.append(contestant(bench, name, plans))
            except (BadInput, KernelBuildError, RuntimeError) as reason:
                print(f"{name}: {' '.join(str(reason).split())[:160]}", flush=True)
    return found


def main() -> None:
    options = parse_options()
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        pool, outputs = random_pool(ELEMENTS, DTYPE), cp.empty(ELEMENTS, cp.float16)
        bench = Bench(stream, pool, outputs, DenseProduct(stream, DTYPE), ClockProbe(), {})
        contestants = prepare(bench, options)
        samples = take_turns(stream, contestants, TURNS, bench.probe)
    measured: dict[str, dict[str, Any]] = {}
    for name, sample in samples.items():
        case, kernel = name.rsplit(" ", 1)
        low, middle, high = np.quantile(sample.seconds, (0.1, 0.5, 0.9)) * 1e6
        measured.setdefault(case, {})[kernel] = {
            "us": round(float(middle), 3),
            "spread": round(float((high - low) / middle), 4),
            "clock_mhz": round(float(np.median(sample.clock_mhz))),
        }
        print(f"{name:45} {middle:9.2f} us", flush=True)
    record = {"gpu": GPU, "state": "burst", "launch": "graph", "turns": TURNS, "cases": measured}
    options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
