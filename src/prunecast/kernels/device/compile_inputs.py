"""Compile-time parameters of the kernel of a plan: source, preprocessor macros and registers.

The module also launches the kernel `fill_rows.cu`, which writes rows of C that are in no tile.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.build import CompiledKernel, KernelBuildError, compile_cubin, compile_own
from prunecast.kernels.device.conv_input import conv_defines
from prunecast.kernels.device.launch import Place, PreparedLaunch
from prunecast.plan.kernel_plan import KernelPlan

ARCH = "sm_90a"
"""Architecture for which kernels with Hopper instructions are compiled."""
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "silu": 3, "gelu-tanh": 4}
"""Activation -> macro. Kind: CUDA source, `activation.cuh`."""


class CompileOptions(TypedDict, total=False):
    """Compile options that are not part of a plan."""

    activation: str
    """One of `ACTIVATIONS`, applied after the bias."""
    bias: bool
    output: str
    """Format of C for fp8 operands, `fp16` or `bf16`; all other plans write C in the plan's format."""
    changes: Mapping[str, int] | None
    """Preprocessor macros and values that override those of the plan, for experiments and debugging."""


class CompileInputs(NamedTuple):
    """Inputs of the compiler for the kernel of a plan: source, macros, and the expected registers."""

    source: Path
    entry: str
    """Name of the `__global__` function."""
    defines: Mapping[str, int]
    """Preprocessor names and their values."""
    registers: int | None = None
    """Registers per thread according to the plan; None if only the launch bound limits them."""
    fewer: bool = False
    """True if the kernel may use fewer registers than `registers`."""
    includes: tuple[Path, ...] = ()
    """Folders of headers in addition to the source's own folder and that of the device."""
    any_arch: bool = False
    """True if the kernel has no architecture-specific instructions, such as those of `sm_90a`."""

    def build(self, arch: str = ARCH) -> CompiledKernel:
        """Compile the source for an architecture.

        Raises
        ------
        KernelBuildError : in the same cases as `compile_cubin`, or the kernel does not use the number of
            registers in the plan
        """
        spills = bool(self.defines.get("GUARD", 0))
        name = arch.rstrip("a") if self.any_arch else arch
        kernel = compile_cubin(self.source, name, self.defines, includes=self.includes, allow_spills=spills)
        used, said = kernel.registers, self.registers
        if said is not None and (used > said or (used < said and not self.fewer)):
            most = "at most " if self.fewer else ""
            raise KernelBuildError(
                f"{self.source.stem} uses {used} registers on {kernel.arch}, the plan says {most}{said}"
            )
        return kernel


def plan_defines(plan: KernelPlan, **options: Unpack[CompileOptions]) -> dict[str, int]:
    """Return the preprocessor macros common to all plans: threads, shared memory, convolution, epilogue.

    The option `changes` overrides them. Raises BadInput for an unknown activation.
    """
    dtype = options.get("output", plan.dtype)
    ends = end_defines(options.get("activation", "none"), bias=options.get("bias", False), dtype=dtype)
    return {
        "PLAN_SHARED_BYTES": plan.resources.shared_bytes,
        "PLAN_THREADS": plan.resources.threads,
        **conv_defines(plan),
        **({"GROUPED": 1} if plan.experts > 1 else {}),
        **ends,
        **(options.get("changes") or {}),
    }


def end_defines(activation: str, *, bias: bool, dtype: str = "fp16") -> dict[str, int]:
    """Return the preprocessor macros of the epilogue: bias, activation, and the format of C.

    Raises BadInput for an unknown activation.
    """
    if activation not in ACTIVATIONS:
        raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    return {
        "BIAS": int(bias),
        "ACTIVATION": ACTIVATIONS[activation],
        **({"BF16": 1} if dtype == "bf16" else {}),
    }


_THREADS = 256
"""Threads of a block. Kind: CUDA source, `fill_rows.cu`."""
_ARGUMENTS, _ARGUMENT_BYTES = 5, 8
"""Number of arguments, and bytes of each. Kind: CUDA source, `fill_rows.cu`."""


class FillRows:
    """Launch that writes activation(bias) to the rows of C that have no kept weights.

    Parameters
    ----------
    function : handle of the loaded kernel
    rows : device address of `count` row indices (int32); the caller keeps the array alive
    count : number of these rows
    """

    def __init__(self, function: int, rows: int, count: int) -> None:
        # `tokens` is an int in the kernel: the lower half of a little-endian 8-byte word
        values = np.array([rows, 0, 0, 0, 0], np.uint64)
        self._words = values.data
        first = values.ctypes.data
        addresses = [first + _ARGUMENT_BYTES * argument for argument in range(_ARGUMENTS)]
        self._launch = PreparedLaunch(
            function, addresses, blocks=count, threads=_THREADS, shared_bytes=0, overlap=False
        )

    def __call__(self, c: Place, bias: int, tokens: int, stream: int) -> None:
        """Enqueue the launch.

        Parameters
        ----------
        c : address and row stride of C
        bias : device address of the fp32 bias; 0 for none
        tokens : tokens of a row of C, a multiple of 8
        stream : handle of a CUDA stream
        """
        words = self._words
        words[1], (words[2], words[3]), words[4] = bias, c, tokens
        self._launch(stream)


def build_fill(dtype: str, activation: str, *, bias: bool) -> CompiledKernel:
    """Compile the kernel of `FillRows` for C in `dtype`, with an epilogue of bias and activation."""
    defines = end_defines(activation, bias=bias, dtype=dtype)
    return compile_own("fill_rows.cu", ARCH, tuple(defines.items()))
