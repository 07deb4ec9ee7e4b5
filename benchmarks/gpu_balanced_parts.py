"""Balanced products with parts of the kernel left out: what each part takes, with no stamp in the way.

    python -m benchmarks.gpu_balanced_parts build FOLDER          without a GPU
    python -m benchmarks.gpu_balanced_parts run FOLDER --out DIR  DIR/parts.json

Each case is timed as the suites do it, in turn with builds of the same source that do not multiply, do not
copy B beyond the first step, do neither, stop after one step, or do not let the next launch begin. Results of
those are wrong on purpose.
"""

import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.stamps.balanced_parts import PATCHES, part_cases, variants
from benchmarks.stamps.products import GPU
from benchmarks.stamps.run import parser_of
from benchmarks.stamps.sources import compile_from, patched_sources
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KernelPlan, compile
from prunecast.kernels.cuda import build
from prunecast.kernels.cuda.balanced.forms import balanced_defines, form_of
from prunecast.validation.case import Case
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan

TURNS = 5


class Part(NamedTuple):
    """One build."""

    cubin: Path
    plan: KernelPlan
    """With as much shared memory as lets as many blocks onto an SM as the whole kernel has there."""
    fit: int


def build_part(
    plan: KernelPlan, defines: Mapping[str, int], sources: Path, cache: Path, fit: int | None
) -> Part:
    """Compile, so that `fit` blocks lie on an SM if it is told."""
    form = form_of(plan)
    found = compile_from(
        sources, f"balanced/{form.source}", "sm_90", {**balanced_defines(plan), **defines}, cache
    )
    own = _fit(plan, found.registers)
    if fit is not None and own > fit:
        room = GPU.shared_bytes_per_sm // fit - 1024
        plan = replace(plan, resources=plan.resources._replace(shared_bytes=room // 1024 * 1024))
        own = _fit(plan, found.registers)
    return Part(found.cubin, plan, own)


def _fit(plan: KernelPlan, registers: int) -> int:
    return occupancy(plan.resources._replace(registers_per_thread=registers), GPU).blocks_per_sm


def parts_of(plan: KernelPlan, sources: Path, cache: Path) -> dict[str, Part]:
    """All builds by name, the whole kernel first."""
    found: dict[str, Part] = {}
    for name, defines in variants(one_token=plan.n == 1).items():
        fit = found["plain"].fit if found else None
        found[name] = build_part(plan, defines, sources, cache, fit)
    return found


def build_all(cache: Path) -> None:
    """Fill the cache."""
    from prunecast.kernels.cuda.forms import ARCH
    from prunecast.validation.measure.sources import MICROBENCHMARKS

    build.compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {}, folder=cache)
    with tempfile.TemporaryDirectory() as other:
        sources = patched_sources(Path(other), PATCHES)
        for case in part_cases():
            plan = case_plan(case, "balanced", map_of(case), GPU)
            form = form_of(plan)
            build.compile_cubin(
                build.SOURCES / "balanced" / form.source, "sm_90", balanced_defines(plan), folder=cache
            )
            fits = {name: part.fit for name, part in parts_of(plan, sources, cache).items()}
            print(case.name, form[1:5], fits, flush=True)


def measure(case: Case, bench: "Bench", sources: Path, cache: Path) -> dict[str, Any]:
    """Microseconds of every build."""
    from prunecast.kernels.cuda.layer_operator import load_kernel
    from prunecast.validation.measure.inputs import layer_inputs
    from prunecast.validation.measure.timing import capture, take_turns

    plan = case_plan(case, "balanced", map_of(case), GPU)
    inputs = layer_inputs(case.m, case.k, case.n, case.dtype, bench.pools[case.dtype], bench.outputs)
    sets = inputs.sets(2 * plan.density * plan.m * plan.k)
    first: Any = compile(plan, inputs.weights)
    found = []
    for name, part in parts_of(plan, sources, cache).items():
        kernel = load_kernel(part.cubin, form_of(plan).entry, part.plan.resources.shared_bytes)
        operators = [first.with_kernel(kernel, part.plan) for _ in range(sets)]

        def run(i: int, operators: list[Any] = operators) -> object:
            return operators[i](inputs.b(i), out=inputs.c(i))

        found.append(capture(name, bench.stream, run, sets))
    samples = take_turns(bench.stream, found, TURNS, bench.probe)
    us = {name: 1e6 * float(np.median(sample.seconds)) for name, sample in samples.items()}
    mhz = float(np.median(samples["plain"].clock_mhz))
    return {"case": case.name, "blocks": first.blocks, "sets": sets, "mhz": mhz, **us}


class Bench(NamedTuple):
    """What all cases share on the device."""

    stream: Any
    probe: Any
    pools: Mapping[str, Any]
    """By format."""
    outputs: Any


def run_all(cache: Path, out: Path, seconds: float) -> None:
    """Measure until time is up."""
    import cupy as cp

    from prunecast.validation.measure.clock_probe import ClockProbe
    from prunecast.validation.measure.inputs import random_pool

    began = time.perf_counter()
    os.environ["PRUNECAST_CACHE"] = str(cache)
    pools = {dtype: random_pool(50_000_000, dtype) for dtype in ("fp16", "bf16")}
    bench = Bench(cp.cuda.Stream(non_blocking=True), ClockProbe(), pools, cp.empty(50_000_000, cp.uint16))
    records = []
    with tempfile.TemporaryDirectory() as other:
        sources = patched_sources(Path(other), PATCHES)
        for case in part_cases():
            if time.perf_counter() - began > seconds:
                print("out of time at", case.name)
                break
            outputs = bench.outputs if case.dtype == "bf16" else bench.outputs.view(cp.float16)
            try:
                with bench.stream:
                    record = measure(case, bench._replace(outputs=outputs), sources, cache)
            except Exception as reason:  # the other cases still count
                print("failed:", case.name, repr(reason))
                continue
            bench.stream.synchronize()
            cp.get_default_memory_pool().free_all_blocks()
            records.append(record)
            times = " ".join(f"{name} {value:.2f}" for name, value in list(record.items())[4:])
            print(f"{record['case']:44s} {record['mhz']:.0f} {times}", flush=True)
    (out / "parts.json").write_text(json.dumps(records))
    print(f"{time.perf_counter() - began:.0f} s")


def main() -> None:
    """Build or run."""
    options = parser_of(__doc__, seconds=85.0).parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build_all(options.folder)
    else:
        run_all(options.folder, options.out, options.seconds)


if __name__ == "__main__":
    main()
