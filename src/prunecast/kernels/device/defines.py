"""What all forms have in common: preprocessor names of a block and of the end of C, and their registers."""

from prunecast.errors import BadInput
from prunecast.kernels.device.build import CompiledKernel, KernelBuildError
from prunecast.kernels.device.conv_input import conv_defines
from prunecast.plan.kernel_plan import KernelPlan

ARCH = "sm_90a"
"""What kernels with instructions of Hopper are compiled for."""
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "silu": 3, "gelu-tanh": 4}
"""Activation -> macro. Kind: CUDA source, `activation.cuh`."""


def end_defines(activation: str, *, bias: bool, dtype: str = "fp16") -> dict[str, int]:
    """What becomes of sums before they are C. Raises BadInput for an unknown activation."""
    if activation not in ACTIVATIONS:
        raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    return {
        "BIAS": int(bias),
        "ACTIVATION": ACTIVATIONS[activation],
        **({"BF16": 1} if dtype == "bf16" else {}),
    }


def plan_defines(plan: KernelPlan, activation: str, *, bias: bool) -> dict[str, int]:
    """Preprocessor names of the build, with the threads and shared memory that the plan gives a block."""
    return {
        "PLAN_SHARED_BYTES": plan.resources.shared_bytes,
        "PLAN_THREADS": plan.resources.threads,
        **conv_defines(plan),
        **end_defines(activation, bias=bias, dtype=plan.dtype),
    }


def check_registers(kernel: CompiledKernel, plan: KernelPlan, *, fewer: bool) -> None:
    """Refuse a kernel with more registers than its plan says, or with others at all unless `fewer` may be.

    Raises
    ------
    KernelBuildError : the message names the kernel, its registers and the plan's
    """
    said, used = plan.resources.registers_per_thread, kernel.registers
    if used > said or (used < said and not fewer):
        name, most = kernel.cubin.name.split("-")[0], "at most " if fewer else ""
        raise KernelBuildError(f"{name} uses {used} registers on {kernel.arch}, the plan says {most}{said}")
