"""Which compiled form of the balanced kernels a plan runs, read from the plan and checked against it."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from prunecast.errors import BadInput
from prunecast.kernels.balanced.layout import GROUP_ROWS, WARPS, VectorLayout, choose_rest, vector_layout
from prunecast.kernels.balanced.planner import ring_bytes
from prunecast.kernels.device.build import CompiledKernel, compile_cubin
from prunecast.kernels.device.defines import check_registers, end_defines
from prunecast.plan.kernel_plan import KernelPlan

SOURCES = Path(__file__).parent
_HALF = {"fp32": 0, "fp16": 1, "bf16": 2}
"""dtype -> macro `HALF`. Kind: CUDA source, `element.cuh`."""


class BalancedForm(NamedTuple):
    """What a plan says beyond the contract."""

    source: str
    entry: str
    """Name of the kernel in the source."""
    window: int = 0
    splits: int = 0
    rest: int = 0
    vector: VectorLayout | None = None


def form_of(plan: KernelPlan) -> BalancedForm:
    """The form of a balanced plan; the same plan gives the same form everywhere."""
    if plan.inner is None:
        raise BadInput("the balanced kernel needs a plan with elements")
    if plan.n == 1:
        return BalancedForm("vector.cu", "balanced_vector", vector=vector_layout(plan.inner))
    splits = GROUP_ROWS * WARPS // plan.shape.block_m
    window = plan.shape.block_k // splits
    rest = choose_rest(plan.inner, window)
    return BalancedForm("matrix.cu", "balanced_matrix", window=window, splits=splits, rest=rest)


def balanced_defines(plan: KernelPlan, *, activation: str = "none", bias: bool = False) -> dict[str, int]:
    """Preprocessor names of the form."""
    end = {**end_defines(activation, bias=bias), "HALF": _HALF[plan.dtype]}
    form = form_of(plan)
    if form.vector is not None:
        index_bytes = 1 if form.vector.places < 256 else 2
        return {
            "ROWS": plan.shape.block_m // WARPS,
            "SEGMENT": form.vector.segment,
            "INDEX_BYTES": index_bytes,
            **end,
        }
    return {
        "WINDOW": form.window,
        "SPLITS": form.splits,
        "REST_PAIRS": form.rest // 2,
        "PLAN_THREADS": plan.resources.threads,
        "PLAN_SHARED_BYTES": ring_bytes(form.window, form.splits, plan.dtype),
        **end,
    }


def build_balanced(
    plan: KernelPlan,
    arch: str,
    *,
    activation: str = "none",
    bias: bool = False,
    changes: Mapping[str, int] | None = None,
) -> CompiledKernel:
    """Compile the form for an architecture.

    Raises
    ------
    KernelBuildError : as `compile_cubin`, or more registers than the plan's
    """
    form = form_of(plan)
    defines = {**balanced_defines(plan, activation=activation, bias=bias), **(changes or {})}
    kernel = compile_cubin(SOURCES / form.source, arch, defines)
    check_registers(kernel, plan, fewer=True)
    return kernel
