"""Compile the cubins that measuring a suite on an H200 asks for; needs no GPU.

    python -m benchmarks.suite build/suite [standard]

writes them into that folder; with it as PRUNECAST_CACHE, `prunecast validate` compiles nothing on the GPU
machine. A plan that no kernel runs, or that cannot be compiled, is told, as its row will be.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks.tile.cases import GPU
from prunecast.errors import BadInput
from prunecast.kernels import KERNELS, KernelPlan
from prunecast.kernels.device.build import CompiledKernel, KernelBuildError, compile_cubin
from prunecast.kernels.device.compile_inputs import ARCH, build_fill
from prunecast.validation.case_maps import case_plan, map_of
from prunecast.validation.measure.sources import MICROBENCHMARKS
from prunecast.validation.suite import Suite, load_suite


def plans_of(suite: Suite) -> Iterator[KernelPlan]:
    """What the suite runs of the project's kernels."""
    for case in suite.cases:
        kernels = [kernel for kernel in case.kernels if KERNELS[kernel].compilers]
        kept = map_of(case) if kernels else None
        for kernel in kernels:
            try:
                yield case_plan(case, kernel, kept, GPU)
            except BadInput as reason:
                print(f"no plan: {case.name} {kernel}: {reason}", flush=True)


def build(plan: KernelPlan) -> CompiledKernel | None:
    """The cubin of a plan, in the cache; None where no kernel of the project runs it."""
    entry = KERNELS[plan.kernel].compilers.get(plan.tensor)
    return None if entry is None else entry.load().compile_inputs(plan).build()


def build_all(plans: Iterable[KernelPlan]) -> None:
    """Compile all forms of some plans."""
    forms = {(plan.kernel, plan.config, plan.cluster, plan.schedule, plan.dtype): plan for plan in plans}
    with ThreadPoolExecutor() as pool:
        built = list(pool.map(build, forms.values()))
    print(f"{len(built)} forms of kernels compiled", flush=True)


def _told(plan: KernelPlan) -> CompiledKernel | None:
    try:
        return build(plan)
    except (BadInput, KernelBuildError) as reason:
        print(f"left out: {plan.kernel} {plan.shape} {plan.n} tokens: {reason}", flush=True)
        return None


def main() -> None:
    """Fill the folder named on the command line."""
    folder = Path(sys.argv[1])
    os.environ["PRUNECAST_CACHE"] = str(folder)  # the kernels' builders have no folder to be told
    fills = [partial(build_fill, dtype, "none", bias=False) for dtype in ("fp16", "bf16")]
    probe = partial(compile_cubin, MICROBENCHMARKS / "clock_probe.cu", ARCH, {})
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(job) for job in (probe, *fills)]
        suite = load_suite(sys.argv[2] if len(sys.argv) > 2 else "standard")
        jobs += [pool.submit(_told, plan) for plan in plans_of(suite)]
    built = {kernel.cubin for job in jobs if (kernel := job.result()) is not None}
    print(f"{len(built)} cubins, {sum(file.stat().st_size for file in built) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
