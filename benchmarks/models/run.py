"""Measure prepared models: every plan checked against float64, then timed in turn with cuBLAS.

Layers of one shape and the dense product in both layouts run in turn: graphs of at most 4 ms, rests, all
arrays rotated over more than twice the L2. Last come all products of a model in one graph, pruned and dense.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, NamedTuple

import cupy as cp
import numpy as np

from benchmarks.models.prepare import prepare
from benchmarks.models.report import print_record
from benchmarks.on_gpu.check import Inputs as CheckInputs
from benchmarks.on_gpu.check import check, random_inputs
from benchmarks.on_gpu.session import device
from benchmarks.on_gpu.timing import Contestant, Sample, contestant, take_turns
from prunecast.kernels import KernelPlan
from prunecast.kernels.compile import compile
from prunecast.validation.measure.contestants import (
    Inputs,
    dense_runners,
    largest_excess,
    layer_inputs,
    random_pool,
)
from prunecast.validation.measure.libraries import DenseProduct

POOL_ELEMENTS = 400_000_000
OUTPUT_ELEMENTS = 400_000_000
LAYOUTS = ("KN", "NK")
"""Of B, for cuBLAS."""
MODEL_SETS = 2
"""Places in the pools from which the products of a whole model begin."""

Shape = tuple[int, int, int]


class Operators(NamedTuple):
    """A plan that was found right, in as many copies as a cold L2 wants."""

    copies: list[Any]
    inputs: Inputs


class Bench:
    """What all shapes share on the device."""

    def __init__(self) -> None:
        self.stream = cp.cuda.Stream(non_blocking=True)
        self.pool = random_pool(POOL_ELEMENTS, "fp16")
        self.outputs = cp.empty(OUTPUT_ELEMENTS, cp.float16)
        self.product = DenseProduct(self.stream, "fp16")
        cp.cuda.Device().synchronize()  # the pools were filled on another stream
        self.operators: dict[str, Operators] = {}
        """Plan -> operators, of the model that is being measured."""
        self.layout: dict[Shape, str] = {}
        """Shape -> the faster layout of B."""

    def inputs(self, shape: Shape) -> Inputs:
        """Rotating arrays of a shape."""
        return layer_inputs(*shape, "fp16", self.pool, self.outputs)


def run(options: argparse.Namespace) -> int:
    """Check, time, print, write; the exit code."""
    options.out.mkdir(parents=True, exist_ok=True)
    models, plans = prepare(options.models.split(","))  # one empty word is in every name
    record: dict[str, Any] = {"device": device(), "arguments": sys.argv[1:], "checks": [], "models": []}
    began = time.perf_counter()
    try:
        bench = Bench()
        with bench.stream:
            for model in models:
                record["models"].append(_measured(bench, model, plans, options, record))
                print(f"{model['name']}: {time.perf_counter() - began:.0f} s", flush=True)
    except Exception:
        record["stopped"] = traceback.format_exc()
        traceback.print_exc()
    (options.out / "models.json").write_text(json.dumps(record, indent=1))
    print_record(record)
    return 1 if "stopped" in record or not all(c["passes"] for c in record["checks"]) else 0


def _measured(
    bench: Bench,
    model: dict[str, Any],
    plans: dict[str, KernelPlan],
    options: argparse.Namespace,
    record: dict[str, Any],
) -> dict[str, Any]:
    """The model's entry with what was measured of every layer and of all together."""
    bench.operators.clear()
    cp.get_default_memory_pool().free_all_blocks()
    layers = [dict(layer) for layer in model["layers"]]
    for shape in dict.fromkeys(_shape(layer) for layer in layers):
        own = [layer for layer in layers if _shape(layer) == shape]
        marks = dict.fromkeys(mark for layer in own if (mark := layer["plan"]))
        record["checks"] += _prepare_operators(bench, {mark: plans[mark] for mark in marks})
        _time_shape(bench, shape, own, options.turns)
    together = _together(bench, layers, options.turns)
    return {**model, "layers": layers, "together": together}


def _shape(layer: dict[str, Any]) -> Shape:
    return layer["m"], layer["k"], layer["n"]


def _prepare_operators(bench: Bench, plans: dict[str, KernelPlan]) -> list[dict[str, Any]]:
    """Compile, check and copy; a plan that is wrong gets no operators."""
    verdicts = []
    for mark, plan in plans.items():
        inputs = random_inputs(plan, seed=11)
        operator: Any = compile(plan, inputs.a)
        kept = inputs.a if plan.inner is None else inputs.a * plan.inner.mask()
        verdict = check(mark, operator, CheckInputs(kept, inputs.b), runs=3)
        verdicts.append({**verdict._asdict(), "passes": verdict.passes})
        if not verdict.passes:
            print(f"  WRONG {verdict}", flush=True)
            continue
        own = bench.inputs((plan.m, plan.k, plan.n))
        copies = own.sets(2.0 * plan.density * plan.m * plan.k)
        bench.operators[mark] = Operators([operator, *(operator.copy() for _ in range(copies - 1))], own)
        del inputs
    cp.get_default_memory_pool().free_all_blocks()
    return verdicts


def _time_shape(bench: Bench, shape: Shape, layers: list[dict[str, Any]], turns: int) -> None:
    """Add `measured` and `dense_measured` seconds to the layers of one shape, all timed in turn."""
    contestants = _dense(bench, shape)
    marks = dict.fromkeys(layer["plan"] for layer in layers if layer["plan"] in bench.operators)
    contestants += [_own(bench, mark) for mark in marks]
    samples = take_turns(bench.stream, contestants, turns)
    best = min((samples[layout] for layout in LAYOUTS), key=lambda sample: sample.median)
    bench.layout[shape] = best.name
    for layer in layers:
        sample = best if layer["plan"] is None else samples.get(layer["plan"])
        layer |= {"dense_measured": best.median, "dense_layout": best.name, **_result(sample)}


def _result(sample: Sample | None) -> dict[str, Any]:
    if sample is None:
        return {"measured": None}
    clock = float(np.median(sample.clock_mhz)) if sample.clock_mhz else None
    return {"measured": sample.median, "samples": sample.seconds, "clock_mhz": clock}


def _dense(bench: Bench, shape: Shape) -> list[Contestant]:
    inputs = bench.inputs(shape)
    found = []
    for runner in dense_runners(inputs, bench.product):
        excess = largest_excess(runner, None, inputs.k, inputs, library=True)
        if not excess <= 1.0:
            raise RuntimeError(f"cuBLAS {runner.config} of {shape} is wrong: {excess:.3g} times its bound")
        found.append(contestant(runner.config, bench.stream, runner.launch, sets=runner.sets))
    return found


def _own(bench: Bench, mark: str) -> Contestant:
    copies, inputs = bench.operators[mark]

    def launch(i: int) -> Any:
        return copies[i](inputs.b(i), out=inputs.c(i))

    return contestant(mark, bench.stream, launch, sets=len(copies), clock=copies[0].clock)


def _together(bench: Bench, layers: list[dict[str, Any]], turns: int) -> dict[str, Any]:
    """Seconds of all products in one graph, layer after layer; every layer has its own place in the pools.

    Nothing where a plan was wrong.
    """
    if any(layer["measured"] is None for layer in layers):
        return {}
    runs = {
        "pruned": [_launcher(bench, layer, pruned=True) for layer in layers],
        "dense": [_launcher(bench, layer, pruned=False) for layer in layers],
    }

    def launcher(products: list[Callable[[int], object]]) -> Callable[[int], object]:
        def launch(i: int) -> None:
            for place, product in enumerate(products):
                product(place + i * len(products))

        return launch

    contestants = [
        contestant(name, bench.stream, launcher(products), sets=MODEL_SETS) for name, products in runs.items()
    ]
    samples = take_turns(bench.stream, contestants, turns)
    return {name: {"measured": one.median, "samples": one.seconds} for name, one in samples.items()}


def _launcher(bench: Bench, layer: dict[str, Any], *, pruned: bool) -> Callable[[int], object]:
    mark, inputs = layer["plan"], bench.inputs(_shape(layer))
    if pruned and mark:
        operator = bench.operators[mark].copies[0]
        return lambda place: operator(inputs.b(place), out=inputs.c(place))
    one = next(r for r in dense_runners(inputs, bench.product) if r.config == bench.layout[_shape(layer)])
    return one.launch
