"""Which compiled form of the small-n kernel a plan runs: the defines, checked against what the plan says."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.build import CompiledKernel, compile_cubin
from prunecast.kernels.device.defines import check_registers, plan_defines
from prunecast.kernels.small_n.configs import config_of_shape, row_unit
from prunecast.plan.kernel_plan import KernelPlan, Schedule

SMALL_SOURCE = Path(__file__).parent / "small_n.cu"
_REGISTERS_PER_SM = 65536
"""Registers of an SM on every architecture from 8.0 on. Kind: datasheet, CUDA C++ Programming Guide,
technical specifications."""


def small_defines(
    plan: KernelPlan,
    *,
    activation: str = "none",
    bias: bool = False,
    changes: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """Preprocessor names of the form; `changes` override them, for experiments.

    Raises
    ------
    BadInput : the plan is for another kernel, or the activation is unknown
    """
    if (
        plan.kernel != "small-n"
        or plan.schedule is Schedule.DYNAMIC
        or np.any(np.diff(plan.work.block_start) > 1)
        or plan.work.parts.max(initial=1) > 1
    ):
        raise BadInput(f"the small-n kernel runs its own plans of whole tiles, got {plan.kernel}")
    form, resources = config_of_shape(plan.shape, plan.resources), plan.resources
    defines = {
        "BLOCK_M": form.block_m,
        "BLOCK_N": form.block_n,
        "WARPS": form.warps,
        "DEPTH": form.depth,
        "UNIT": row_unit(plan.n),
        "BLOCKS_PER_SM": max(_REGISTERS_PER_SM // (resources.registers_per_thread * resources.threads), 1),
        **plan_defines(plan, activation, bias=bias),
    }
    return {**defines, **(changes or {})}


def build_small(plan: KernelPlan, arch: str, defines: Mapping[str, int]) -> CompiledKernel:
    """Compile the form for an architecture.

    Raises
    ------
    KernelBuildError : as `compile_cubin`, or more registers than the plan's
    """
    kernel = compile_cubin(SMALL_SOURCE, arch, defines)
    check_registers(kernel, plan, fewer=True)
    return kernel
