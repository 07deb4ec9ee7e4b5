"""Whether bursts wait for the host: short *fit* cases timed while the stream is held for longer and longer.

    PRUNECAST_CACHE=build/cubin python -m benchmarks.gpu_hold --out DIR        DIR/gpu_hold.json
    PRUNECAST_CACHE=build/cubin python -m benchmarks.gpu_hold --build          cubins, without a GPU

A burst holds its stream, then enqueues readings, events and one graph. If the host takes longer for that than
the stream is held, the first launch starts late and all launches of the graph share what was lost.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.validation.case import Case
from prunecast.validation.case_maps import map_of
from prunecast.validation.case_plans import case_plan
from prunecast.validation.suite import load_suite

HOLDS_US = (60, 150, 400, 1000, 2000)
CASES = (
    ("stspmm", "512x512x512 fp16 tile-wise:128 0.9 equal #1"),
    ("stspmm", "1024x4096x512 fp16 tile-wise:128 0.98 equal #1"),
    ("stspmm", "2048x512x512 fp16 tile-wise:32 0.9 equal #1"),
    ("stspmm", "768x768x2048 fp16 tile-wise:128 0.5 equal #1"),
    ("stspmm", "4096x1024x512 fp16 tile-wise:128 0.5 equal #1"),
    ("stspmm", "768x3072x512 fp16 tile-wise:128 0 equal #1"),
    ("stspmm", "3072x768x4096 fp16 dense-block:8 0.75 equal #1"),
    ("stspmm", "4096x4096x512 fp16 atp-2d:128 0.75 equal #1"),
    ("2:4", "2048x512x512 fp16 tvw:128 0.9 lognormal:0.6 #1"),
    ("small-n", "3072x768x16 fp16 tile-wise:128 0.9 equal #1"),
    ("dense", "3072x768x128 fp16 dense 0 equal #1"),
    ("dense", "768x768x2048 fp16 dense 0 equal #1"),
    ("dense", "4096x1024x512 fp16 dense 0 equal #1"),
    ("dense", "512x2048x4096 fp16 dense 0 equal #1"),
)
GPU = load_gpu("h200-sxm")


def found_cases() -> list[tuple[str, Case]]:
    """Cases of `CASES` that the suite has."""
    suite = {case.name: case for case in load_suite("standard").cases}
    return [(kernel, suite[name]) for kernel, name in CASES if name in suite]


def own_plan(kernel: str, case: Case) -> KernelPlan:
    """As the suite plans it."""
    return case_plan(case, kernel, map_of(case), GPU)


def build() -> None:
    """Compile what the run needs, so that it needs no compiler."""
    from prunecast.kernels.cuda.build import compile_cubin
    from prunecast.kernels.cuda.forms import ARCH, build_fill, build_tile_kernel, tile_defines
    from prunecast.kernels.cuda.small.forms import build_small, small_defines
    from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel, sparse_defines
    from prunecast.validation.measure.sources import MICROBENCHMARKS

    build_fill("fp16", "none", bias=False)
    compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {})
    for kernel, case in found_cases():
        if kernel == "dense":
            continue
        plan = own_plan(kernel, case)
        if kernel == "small-n":
            build_small(plan, ARCH, small_defines(plan, activation="none", bias=False, changes={}))
        elif plan.inner is not None:
            build_sparse_kernel(plan, sparse_defines(plan))
        else:
            build_tile_kernel(plan, tile_defines(plan))
        print(kernel, case.name, plan.blocks)


def run(out: Path) -> None:
    """Time every case under every hold."""
    import cupy as cp

    from prunecast.validation.measure import clock_probe
    from prunecast.validation.measure.contestants import dense_runners, own_runner
    from prunecast.validation.measure.inputs import layer_inputs, random_pool
    from prunecast.validation.measure.libraries import DenseProduct
    from prunecast.validation.measure.timing import capture, take_turns

    stream, probe = cp.cuda.Stream(non_blocking=True), clock_probe.ClockProbe()
    record: list[dict[str, Any]] = []
    with stream:
        pool, outputs = random_pool(400_000_000, "fp16"), cp.empty(400_000_000, cp.float16)
        dense = DenseProduct(stream, "fp16")
        for kernel, case in found_cases():
            inputs = layer_inputs(case.m, case.k, case.n, case.dtype, pool, outputs)
            if kernel == "dense":
                runner = dense_runners(inputs, dense)[1]
            else:
                runner = own_runner(own_plan(kernel, case), inputs)
            c = capture(case.name, stream, runner.launch, runner.sets)
            entry: dict[str, Any] = {"kernel": kernel, "case": case.name, "launches": c.launches}
            entry["host_us"] = _host_us(stream, c)
            for hold in HOLDS_US:
                clock_probe.HOLD_NS = 1000 * hold
                sample = take_turns(stream, [c], 5, probe)[case.name]
                entry[f"us_{hold}"] = 1e6 * float(np.median(sample.seconds))
            record.append(entry)
            print(entry, flush=True)
            del c, runner
            stream.synchronize()
            cp.get_default_memory_pool().free_all_blocks()
    (out / "gpu_hold.json").write_text(json.dumps(record))


def _host_us(stream: Any, contestant: Any) -> float:
    """Microseconds of the host for one replay, the median of five."""
    took = []
    for _ in range(5):
        stream.synchronize()
        began = time.perf_counter()
        contestant.replay()
        took.append(1e6 * (time.perf_counter() - began))
        stream.synchronize()
    return float(np.median(took))


def main() -> None:
    """Build or run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.build:
        build()
    else:
        run(options.out)


if __name__ == "__main__":
    main()
