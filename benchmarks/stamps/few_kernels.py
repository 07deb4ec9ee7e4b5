"""Stamped kernels for few tokens, held to the registers that decide how many blocks fit on an SM."""

from pathlib import Path
from typing import NamedTuple

from benchmarks.stamps.products import GPU
from benchmarks.stamps.sources import compile_from
from prunecast.hardware.occupancy import occupancy
from prunecast.kernels import KernelPlan
from prunecast.kernels.cuda import build
from prunecast.kernels.cuda.balanced.forms import balanced_defines
from prunecast.kernels.cuda.small.forms import small_defines

__all__ = ["Built", "stamped"]

KERNELS = {
    "balanced": ("balanced/vector.cu", "balanced_vector", "sm_90"),
    "matrix": ("balanced/matrix.cu", "balanced_matrix", "sm_90"),
    "small-n": ("small/small_n.cu", "small_n", "sm_90a"),
}
"""Source, name and architecture."""


class Built(NamedTuple):
    """A stamped kernel beside the plain one."""

    cubin: Path
    entry: str
    registers: int
    fit: int
    plain_registers: int
    plain_fit: int


def stamped(plan: KernelPlan, sources: Path, cache: Path) -> Built:
    """Compile both; where the stamped one fits less often, again with its registers bound."""
    vector = plan.kernel == "balanced" and plan.n == 1
    kind = plan.kernel if vector or plan.kernel != "balanced" else "matrix"
    name, entry, arch = KERNELS[kind]
    defines = balanced_defines(plan) if plan.kernel == "balanced" else small_defines(plan)
    plain = build.compile_cubin(build.SOURCES / name, arch, defines, folder=cache)
    plain_fit = _fit(plan, plain.registers)
    kernel = compile_from(sources, name, arch, defines, cache)
    if _fit(plan, kernel.registers) < plain_fit and vector:
        bound = f"balanced/vector{plain_fit}.cu"
        text = (sources / name).read_text()
        (sources / bound).write_text(
            text.replace("__launch_bounds__(32 * WARPS, 1)", f"__launch_bounds__(32 * WARPS, {plain_fit})")
        )
        kernel = compile_from(sources, bound, arch, defines, cache)
    if kernel.spill_bytes:
        print("spills", kernel.spill_bytes)
    return Built(
        kernel.cubin, entry, kernel.registers, _fit(plan, kernel.registers), plain.registers, plain_fit
    )


def _fit(plan: KernelPlan, registers: int) -> int:
    return occupancy(plan.resources._replace(registers_per_thread=registers), GPU).blocks_per_sm
