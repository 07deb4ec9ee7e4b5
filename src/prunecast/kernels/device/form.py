"""The compiled form of a kernel that a plan runs: its source, preprocessor names and registers.

Also the kernel `fill_rows.cu`, for rows of C that lie in no tile.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack

import numpy as np

from prunecast.errors import BadInput
from prunecast.kernels.device.build import SOURCES, CompiledKernel, KernelBuildError, compile_cubin
from prunecast.kernels.device.conv_input import conv_defines
from prunecast.kernels.device.launch import Place, PreparedLaunch
from prunecast.plan.kernel_plan import KernelPlan

ARCH = "sm_90a"
"""What kernels with instructions of Hopper are compiled for."""
ACTIVATIONS = {"none": 0, "relu": 1, "gelu": 2, "silu": 3, "gelu-tanh": 4}
"""Activation -> macro. Kind: CUDA source, `activation.cuh`."""


class FormOptions(TypedDict, total=False):
    """What forms differ in for the same plan."""

    activation: str
    """One of `ACTIVATIONS`, after the bias."""
    bias: bool
    changes: Mapping[str, int] | None
    """Preprocessor names that override those of the plan, for experiments and debugging."""


class Form(NamedTuple):
    """What the kernel of a plan is compiled from."""

    source: Path
    entry: str
    """Name of the `__global__` function."""
    defines: Mapping[str, int]
    """Preprocessor names and their values."""
    registers: int | None = None
    """Registers of a thread, as the plan says; None where the launch bound alone holds them."""
    fewer: bool = False
    """Whether it may take fewer."""
    includes: tuple[Path, ...] = ()
    """Folders of headers besides its own and that of the device."""
    any_arch: bool = False
    """Whether it has no instructions that only some architectures have, as `sm_90a` has."""

    def build(self, arch: str = ARCH) -> CompiledKernel:
        """Compile it for an architecture.

        Raises
        ------
        KernelBuildError : as `compile_cubin`, or other registers than the plan's, which it names
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


def plan_defines(plan: KernelPlan, **options: Unpack[FormOptions]) -> dict[str, int]:
    """Preprocessor names that the forms of all plans have, with the threads and shared memory of a block; and
    what is changed of them. Raises BadInput for an unknown activation.
    """
    ends = end_defines(options.get("activation", "none"), bias=options.get("bias", False), dtype=plan.dtype)
    return {
        "PLAN_SHARED_BYTES": plan.resources.shared_bytes,
        "PLAN_THREADS": plan.resources.threads,
        **conv_defines(plan),
        **ends,
        **(options.get("changes") or {}),
    }


def end_defines(activation: str, *, bias: bool, dtype: str = "fp16") -> dict[str, int]:
    """What becomes of sums before they are C. Raises BadInput for an unknown activation."""
    if activation not in ACTIVATIONS:
        raise BadInput(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    return {
        "BIAS": int(bias),
        "ACTIVATION": ACTIVATIONS[activation],
        **({"BF16": 1} if dtype == "bf16" else {}),
    }


_THREADS = 256
"""Threads of a block. Kind: CUDA source, `fill_rows.cu`."""
_C, _C_ROW, _ARGUMENTS, _ARGUMENT_BYTES = 2, 3, 5, 8
"""Places of pointers and row lengths among the arguments, how many there are, and the bytes of each. Kind:
CUDA source, `fill_rows.cu`."""


class FillRows:
    """Writes what rows without weights come to, again and again, to wherever C lies.

    Parameters
    ----------
    function : handle of the loaded kernel
    rows, bias : device addresses; the caller keeps what lies there
    blocks : one for each row
    tokens : of a row of C, a multiple of 8
    """

    def __init__(self, function: int, rows: int, bias: int, *, blocks: int, tokens: int) -> None:
        # `tokens` is an int there, the lower half of its word
        values = np.array([rows, bias, 0, 0, tokens], np.uint64)
        self._words = values.data
        first = values.ctypes.data
        addresses = [first + _ARGUMENT_BYTES * argument for argument in range(_ARGUMENTS)]
        self._launch = PreparedLaunch(
            function, addresses, blocks=blocks, threads=_THREADS, shared_bytes=0, overlap=False
        )

    def __call__(self, c: Place, stream: int) -> None:
        """Enqueue it on a stream of the current device, by handle."""
        self._words[_C], self._words[_C_ROW] = c
        self._launch(stream)


def build_fill(dtype: str, activation: str, *, bias: bool) -> CompiledKernel:
    """Compile the kernel that writes rows of C that lie in no tile."""
    return compile_cubin(SOURCES / "fill_rows.cu", ARCH, end_defines(activation, bias=bias, dtype=dtype))
