"""Which compiled form of the sparse kernel a plan runs: the defines, checked against what the plan says."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.build import CompiledKernel, compile_cubin
from prunecast.kernels.device.defines import ARCH, check_registers, plan_defines
from prunecast.kernels.tile.cuda.forms import SOURCES
from prunecast.plan.kernel_plan import KernelPlan

SPARSE_SOURCE = Path(__file__).parent / "sparse_sm90.cu"
_FORMS = ((256, 128), (256, 64), (128, 256), (128, 128), (128, 64))
"""Tiles of C that are compiled. Kind: choice, what the compile tests build without spills."""


def check_sparse_form(plan: KernelPlan) -> None:
    """Refuse plans that this kernel does not run, with `BadInput`."""
    shape = plan.shape
    if plan.tensor != "sparse-wgmma" or plan.inner is None:
        raise BadInput(f"{plan.kernel}: the sparse kernel runs 2:4 on wgmma, the plan has {plan.tensor}")
    if plan.dtype not in ("fp16", "bf16"):
        raise BadInput(f"{plan.kernel}: the sparse kernel takes fp16 or bf16, the plan has {plan.dtype}")
    if (shape.block_m, shape.block_n) not in _FORMS or shape.block_k != 64:
        known = ", ".join(f"{m} x {n}" for m, n in _FORMS)
        raise BadInput(f"{plan.kernel}: block shapes are {known}; the plan has {tuple(shape)}")
    if np.any(plan.work.parts > 1):
        raise BadInput(f"{plan.kernel}: the sparse kernel does not split tiles, the plan does")


def sparse_defines(
    plan: KernelPlan,
    *,
    activation: str = "none",
    bias: bool = False,
    changes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Preprocessor names of the form; `changes` override them, for experiments and debugging."""
    check_sparse_form(plan)
    defines = {
        "BLOCK_M": plan.shape.block_m,
        "BLOCK_N": plan.shape.block_n,
        "STAGES": plan.resources.stages,
        **plan_defines(plan, activation, bias=bias),
    }
    return {**defines, **(changes or {})}


def build_sparse_kernel(plan: KernelPlan, defines: Mapping[str, int]) -> CompiledKernel:
    """Compile the form.

    Raises
    ------
    KernelBuildError : as `compile_cubin`, or the registers differ from the plan's
    """
    kernel = compile_cubin(
        SPARSE_SOURCE, ARCH, defines, includes=[SOURCES], allow_spills=bool(defines.get("GUARD", 0))
    )
    check_registers(kernel, plan, fewer=False)
    return kernel
