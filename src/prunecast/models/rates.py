"""What one SM does per cycle for a plan, the ceilings of its roofline, and what the roles of warps do."""

from functools import lru_cache
from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.program import Op, WarpProgram
from prunecast.plan.tensor_rate import tensor_fma_per_clk

L1_INTAKE_BYTES = 64.0
"""Bytes a cycle that the first level of cache takes in. From stage to stage of a first ring of the tile
kernel 32 KB take 447 to 541 cycles (clock stamps, H200, 2026-11-22). The rate of a `GpuSpec` was measured
with the 2:4 kernel, whose steps take as long as with it."""


class SmRates(NamedTuple):
    """Work of one SM per cycle, by level."""

    sub_partitions: int
    tensor_fma_per_clk: float
    """FMA per cycle of all tensor pipes together, for the instruction and dtype of the plan; 0 if it uses
    none."""
    fp32_cycles: float
    """Cycles that one fp32 multiply-add of a full warp keeps the pipe of its sub-partition."""
    shared_bytes_per_clk: float
    port_bytes_per_clk: float


def sm_rates(plan: KernelPlan, gpu: GpuSpec) -> SmRates:
    """Ceilings of an SM of `gpu` for the instructions of `plan`.

    Raises
    ------
    BadInput : the plan needs tensor instructions that the GPU does not have
    """
    fp32_lanes = gpu.fp32_fma_per_clk_per_sm / gpu.sub_partitions_per_sm
    return SmRates(
        sub_partitions=gpu.sub_partitions_per_sm,
        tensor_fma_per_clk=tensor_fma_per_clk(gpu, plan.dtype, plan.tensor) if plan.tensor != "none" else 0.0,
        fp32_cycles=max(1.0, 32.0 / fp32_lanes),
        shared_bytes_per_clk=float(gpu.shared_bytes_per_clk_per_sm),
        port_bytes_per_clk=float(gpu.l2_port_bytes_per_clk_per_sm),
    )


def gather_bytes_per_clk(plan: KernelPlan, gpu: GpuSpec) -> float:
    """Bytes a cycle of an SM's gather port: the GPU's, or with dense wgmma what L1 takes in if that is more.

    Worth 0.2 points on block-sparse. The simulator keeps the GPU's rate, which stands there for what gathers
    of several warps cost one another too: with this one its stspmm is 0.3 points worse.
    """
    rate = float(gpu.gather_bytes_per_clk_per_sm)
    return max(rate, L1_INTAKE_BYTES) if plan.tensor == "wgmma" else rate


@lru_cache(maxsize=64)
def runs_ahead(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether warps that only fetch go on to the next item while others still finish this one."""
    return any(program.fetches and not program.multiplies for program in programs)


@lru_cache(maxsize=64)
def waits_for_parts(programs: tuple[WarpProgram, ...]) -> bool:
    """Whether owners of split tiles collect the sums themselves; else another launch adds them up."""
    return any(i.op is Op.WAIT_PARTS for program in programs for i in program.end)
