"""Clock stamps inside the kernels for few tokens: where blocks lie, when they wait, read, multiply and end.

    python -m benchmarks.gpu_trace_few build FOLDER          without a GPU: cubins with and without stamps
    python -m benchmarks.gpu_trace_few run FOLDER --out DIR  DIR/few.npz, DIR/few.json

`--steps` takes cases of which single steps are wanted, of balanced with more tokens too, `--short` few steps
of small-n. `--places` stores nothing but the SM of every block and when it is told to go on, so that kernels
stay as fast as they are. `--gaps` takes cases of which the time between launches is wanted.
`--ends` stores nothing but the SM of every block and when its first and last warp end. `warm` times launches
that all read the same inputs.

The kernels of balanced and of small-n, with stamps written in by the first and the last warp of every block.
Stamped code is held to the registers of the plain one where that decides how many blocks fit on an SM. Cases
are the suite's, with its inputs; each is timed plain, over four times as many sets, and stamped. What the
stamps are called is in `stamps/few_patches.py`.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.stamps.few_cases import (
    KernelCase,
    cases,
    end_cases,
    gap_cases,
    place_cases,
    short_cases,
    step_cases,
)
from benchmarks.stamps.few_kernels import Built, stamped
from benchmarks.stamps.few_patches import ENDS, NAMES, PATCHES, PLACES, WORDS
from benchmarks.stamps.products import GPU
from benchmarks.stamps.run import parser_of
from benchmarks.stamps.sources import Patches, patched_sources
from prunecast.kernels import KernelPlan, compile
from prunecast.kernels.cuda import build
from prunecast.validation.case import Case
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan

TRACED_LAUNCHES = 24
"""Whose stamps are kept."""
FEW_BLOCKS, ALL_LAUNCHES = 48, 240
"""Of launches of so few blocks all are kept: they change places."""
COLD_GRAPHS = 4


class Bench(NamedTuple):
    """What all cases share on the device."""

    stream: Any
    probe: Any
    pool: Any
    outputs: Any


class Operators(NamedTuple):
    """Of one case: as it is, and with stamps."""

    plain: list[Any]
    """`COLD_GRAPHS` times as many as there are sets of inputs."""
    traced: list[Any]


def trace(
    kernel: str, case: Case, bench: Bench, sources: Path, cache: Path, few_blocks: int
) -> tuple[dict[str, Any], np.ndarray]:
    """Times of a case, and the stamps of its last launches: (launches, blocks, 2, WORDS)."""
    from prunecast.validation.measure.inputs import layer_inputs

    plan = case_plan(case, kernel, map_of(case), GPU)
    built = stamped(plan, sources, cache)
    inputs = layer_inputs(case.m, case.k, case.n, case.dtype, bench.pool, bench.outputs)
    sets = inputs.sets(2 * plan.density * plan.m * plan.k)
    operators = _operators(plan, built, inputs.weights, sets)
    blocks = operators.plain[0].blocks
    times, launches, replay = _times(operators, inputs, sets, bench)
    wanted = TRACED_LAUNCHES if blocks > few_blocks else ALL_LAUNCHES
    last = [(launches - back) % sets for back in range(min(wanted, sets), 0, -1)]
    replay()
    bench.stream.synchronize()
    stamps = [operators.traced[i].clock.get()[4:].reshape(blocks, 2, WORDS) for i in last]
    record = {
        "kernel": kernel,
        "case": case.name,
        "blocks": blocks,
        "sets": sets,
        "launches": launches,
        **built._replace(cubin=built.cubin.name)._asdict(),
        **times,
    }
    return record, np.stack(stamps).astype(np.int64)


def _operators(plan: KernelPlan, built: Built, weights: Any, sets: int) -> Operators:
    import cupy as cp

    from prunecast.kernels.cuda.layer_operator import load_kernel

    first: Any = compile(plan, weights)
    plain = [first, *(first.copy() for _ in range(COLD_GRAPHS * sets - 1))]
    traced = [
        first.with_kernel(load_kernel(built.cubin, built.entry, plan.resources.shared_bytes), plan)
        for _ in range(sets)
    ]
    for operator in traced:
        operator.clock = cp.zeros(4 + 2 * WORDS * first.blocks, cp.uint64)
        operator._args["clock"] = operator.clock.data.ptr
    return Operators(plain, traced)


def _times(
    operators: Operators, inputs: Any, sets: int, bench: Bench
) -> tuple[dict[str, float], int, Callable[[], object]]:
    """Microseconds by name with the clock, the launches of a stamped graph, and what replays it."""
    from prunecast.validation.measure.timing import capture, take_turns

    stream, probe = bench.stream, bench.probe
    plain = operators.plain

    def runs(of: list[Any], from_set: int) -> Callable[[int], object]:
        return lambda i: of[from_set + i](inputs.b(from_set + i), out=inputs.c(from_set + i))

    found = [
        capture("plain", stream, runs(plain, 0), sets),
        capture("traced", stream, runs(operators.traced, 0), sets),
        *(capture(f"cold{g}", stream, runs(plain, g * sets), sets) for g in range(1, COLD_GRAPHS)),
        capture("warm", stream, lambda _: plain[0](inputs.b(0), out=inputs.c(0)), sets),
    ]
    samples = take_turns(stream, found, 5, probe)
    alone = take_turns(stream, found[:1], 5, probe)
    us = {name: 1e6 * float(np.median(s.seconds)) for name, s in samples.items()}
    us["alone_us"] = 1e6 * float(np.median(alone["plain"].seconds))
    us["mhz"] = float(np.median(samples["plain"].clock_mhz))
    return us, found[1].launches, found[1].replay


def line(record: dict[str, Any], stamps: np.ndarray) -> str:
    """Blocks to an SM, and mean cycles between stamps."""
    at = NAMES

    def cycles(to: int, base: int) -> np.ndarray:
        return np.asarray((stamps[..., to] - stamps[..., base]) % 2**32)

    on_sm = np.bincount(stamps[-3, :, 0, at["sm"]], minlength=132)
    parts = [int(cycles(to, at["told"]).mean()) for to in (at["spread"], 8, 27, at["end"])]
    slowest = cycles(at["end"], at["told"]).max(axis=(1, 2)).mean()
    times = " ".join(f"{record[name]:.2f}" for name in ("plain", "alone_us", "cold1", "warm", "traced"))
    code = f"{record['plain_registers']}/{record['registers']} fit {record['plain_fit']}/{record['fit']}"
    return (
        f"{record['kernel']:8s} {record['case']:34s} plain, alone, cold, warm, traced {times}"
        f" registers {code} SMs by blocks {np.bincount(on_sm).tolist()}"
        f" spread, first, sums, end {parts}, slowest {slowest:.0f}"
    )


def build_all(folder: Path, wanted: list[KernelCase], patches: Patches) -> None:
    """Fill the cache."""
    from prunecast.kernels.cuda.forms import ARCH
    from prunecast.validation.measure.sources import MICROBENCHMARKS

    build.compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {}, folder=folder)
    with tempfile.TemporaryDirectory() as other:
        sources = patched_sources(Path(other), patches)
        for kernel, case in wanted:
            print(case.name, stamped(case_plan(case, kernel, map_of(case), GPU), sources, folder))


def run_all(folder: Path, out: Path, seconds: float, wanted: list[KernelCase], patches: Patches) -> None:
    """Trace until time is up."""
    import cupy as cp

    from prunecast.validation.measure.clock_probe import ClockProbe
    from prunecast.validation.measure.inputs import random_pool

    began = time.perf_counter()
    os.environ["PRUNECAST_CACHE"] = str(folder)
    pool, outputs = random_pool(100_000_000, "fp16"), cp.empty(100_000_000, cp.float16)
    bench = Bench(cp.cuda.Stream(non_blocking=True), ClockProbe(), pool, outputs)
    records, traces = [], {}
    with tempfile.TemporaryDirectory() as other:
        sources = patched_sources(Path(other), patches)
        for kernel, case in wanted:
            if time.perf_counter() - began > seconds:
                print("out of time at", case.name)
                break
            try:
                with bench.stream:
                    record, stamps = trace(
                        kernel, case, bench, sources, folder, 999 if patches is PLACES else FEW_BLOCKS
                    )
            except Exception as reason:  # the other cases still count
                print("failed:", case.name, repr(reason))
                continue
            bench.stream.synchronize()
            cp.get_default_memory_pool().free_all_blocks()
            records.append(record)
            traces[f"{kernel} {case.name}"] = stamps
            print(line(record, stamps), flush=True)
    (out / "few.json").write_text(json.dumps(records))
    np.savez_compressed(out / "few.npz", **traces)
    print(f"{time.perf_counter() - began:.0f} s")


def main() -> None:
    """Build or run."""
    parser = parser_of(__doc__, seconds=90.0)
    for name in ("--steps", "--short", "--places", "--ends", "--gaps"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    chosen = step_cases if options.steps else place_cases if options.places else cases
    chosen = end_cases if options.ends else short_cases if options.short else chosen
    chosen = gap_cases if options.gaps else chosen
    patches = PLACES if options.places else ENDS if options.ends else PATCHES
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "build":
        build_all(options.folder, chosen(), patches)
    else:
        run_all(options.folder, options.out, options.seconds, chosen(), patches)


if __name__ == "__main__":
    main()
