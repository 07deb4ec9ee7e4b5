"""Compiles, without a GPU, the kernels that 5_measure.py asks for; PRUNECAST_CACHE says where they go."""

from __future__ import annotations

import argparse
from pathlib import Path

from study_plans import STUDIES, ways

from prunecast.errors import BadInput
from prunecast.hardware import load_gpu
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.forms import ARCH, build_fill, build_tile_kernel, tile_defines
from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel, sparse_defines
from prunecast.validation.measure.sources import MICROBENCHMARKS


def build(plan: KernelPlan) -> None:
    """The kernel of a plan. Raises BadInput if it is none of ours."""
    if plan.inner is not None:
        build_sparse_kernel(plan, sparse_defines(plan))
    else:
        build_tile_kernel(plan, tile_defines(plan))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--study", choices=STUDIES, required=True)
    parser.add_argument("--maps", type=Path, required=True)
    options = parser.parse_args()
    gpu, seen = load_gpu("h200-sxm"), set()
    compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {})
    build_fill("fp16", "none", bias=False)
    for case in STUDIES[options.study].cases:
        for kernel, plans in ways(options.study, case, options.maps, gpu):
            for plan in plans:
                form = (kernel, plan.inner is None, plan.shape, plan.resources)
                if form not in seen:
                    seen.add(form)
                    try:
                        build(plan)
                    except BadInput as reason:
                        print(f"{case.name} {kernel}: {reason}")


if __name__ == "__main__":
    main()
