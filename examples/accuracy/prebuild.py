"""Compiles, without a GPU, the kernels that 5_measure.py asks for; PRUNECAST_CACHE says where they go."""

from __future__ import annotations

import argparse
from pathlib import Path

from study_plans import STUDIES, ways

from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.balanced.cuda.images import build_balanced
from prunecast.kernels.device.build import CompiledKernel, KernelBuildError, compile_cubin
from prunecast.kernels.device.operator import build_fill
from prunecast.kernels.tile.cuda.forms import ARCH, build_tile_kernel, tile_defines
from prunecast.kernels.two_of_four.cuda.images import build_sparse_kernel, sparse_defines
from prunecast.validation.measure.sources import MICROBENCHMARKS

BALANCED_ARCH = "sm_90"
"""As its operator asks for: its kernel has no instructions of `sm_90a` alone."""
LIBRARIES = ("dense", "csr")


def build(plan: KernelPlan) -> CompiledKernel:
    """The kernel of a plan, kept in the cache, so that a form is compiled once."""
    if plan.kernel == "balanced":
        return build_balanced(plan, BALANCED_ARCH)
    if plan.inner is not None:
        return build_sparse_kernel(plan, sparse_defines(plan))
    return build_tile_kernel(plan, tile_defines(plan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", choices=STUDIES, required=True)
    parser.add_argument("--maps", type=Path, required=True)
    options = parser.parse_args()
    built = {compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {}).cubin}
    built.add(build_fill("fp16", "none", bias=False).cubin)
    for case in STUDIES[options.study].cases:
        for kernel, plans in ways(options.study, case, options.maps, load_gpu("h200-sxm")):
            try:
                built |= {build(plan).cubin for plan in plans if plan.kernel not in LIBRARIES}
            except KernelBuildError as reason:
                print(f"{case.name} {kernel}: {reason}")
    print(f"{len(built)} kernels")


if __name__ == "__main__":
    main()
