"""Which kernel of the package runs a plan of tiles: its source, entry and defines; built and compiled."""

from typing import Any

import numpy as np

from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda.build import compile_cubin
from prunecast.kernels.cuda.forms import ARCH, build_fill, build_tile_kernel, tile_defines
from prunecast.kernels.cuda.sparse.forms import build_sparse_kernel, sparse_defines
from prunecast.kernels.cuda.token_form import TOKEN_SHAPES, TOKEN_SOURCE
from prunecast.validation.measure.sources import MICROBENCHMARKS

__all__ = ["build_beside", "build_own", "compile_own", "defines_of", "entry_of", "source_of"]


def defines_of(plan: KernelPlan) -> dict[str, int]:
    """Of the plan's form."""
    return sparse_defines(plan) if plan.inner is not None else tile_defines(plan)


def source_of(plan: KernelPlan) -> str:
    """File among the CUDA sources."""
    if plan.inner is not None:
        return "sparse/sparse_sm90.cu"
    return TOKEN_SOURCE if plan.shape[:2] in TOKEN_SHAPES else "tile_sm90.cu"


def entry_of(plan: KernelPlan) -> str:
    """Name of the kernel in it."""
    return "sparse_sm90" if plan.inner is not None else "tile_sm90"


def build_own(plan: KernelPlan) -> None:
    """Put the package's own kernel into the cache."""
    (build_sparse_kernel if plan.inner is not None else build_tile_kernel)(plan, defines_of(plan))


def build_beside() -> None:
    """And what every operator and every sample loads."""
    build_fill("fp16", "none", bias=False)
    compile_cubin(MICROBENCHMARKS / "clock_probe.cu", ARCH, {})


def compile_own(plan: KernelPlan, weights: np.ndarray) -> Any:
    """An operator of the package on the device."""
    from prunecast.kernels.cuda.operator import compile
    from prunecast.kernels.cuda.sparse.operator import compile_sparse

    return (compile_sparse if plan.inner is not None else compile)(plan, weights)
