"""Rates of one SM for a plan, the ceilings of its roofline, and properties of warp programs."""

from functools import lru_cache
from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.plan.kernel_plan import KernelPlan
from prunecast.plan.misaligned import StoreCost, gather_line_cost, store_cost
from prunecast.plan.program import Op, WarpProgram
from prunecast.plan.tensor_rate import tensor_fma_per_clk


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


class ProgramTraits(NamedTuple):
    """Properties of the warp programs of a launch."""

    runs_ahead: bool
    """Warps that only fetch go on to the next item while others still finish this one."""
    copies_through_registers: bool
    """Warps load the next step, rows of B too, into registers and store it: one step ahead, no more."""
    waits_for_parts: bool
    """Owners of split tiles collect the sums themselves; else another launch adds them up."""
    gathered_lines: float
    """L2 cost of gathered rows of B, relative to rows that are aligned to lines."""
    stores: StoreCost


@lru_cache(maxsize=1024)
def program_traits(programs: tuple[WarpProgram, ...]) -> ProgramTraits:
    """Return the properties of warp programs."""
    steps = [i for program in programs for i in program.step]
    return ProgramTraits(
        runs_ahead=any(program.fetches and not program.multiplies for program in programs),
        copies_through_registers=any(i.op is Op.LOAD_B and i.per_k16 and i.ahead == 1 for i in steps),
        waits_for_parts=any(i.op is Op.WAIT_PARTS for program in programs for i in program.end),
        gathered_lines=gather_line_cost(programs),
        stores=store_cost(programs),
    )


def store_rate(context: LaunchContext) -> float:
    """Return the bytes per cycle that an SM can hand to L2 while all others with a block do so too."""
    gpu = context.gpu
    busy_sms = max(min(context.plan.blocks, gpu.sm_count), 1)
    share_of_l2 = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / busy_sms
    # Blocks drift apart: what L2 takes longer for one wave's stores lies under the work of the other waves,
    # and half of a single wave's stores come together (fitted to twelve products with padded rows, 0007)
    waves = max(context.plan.item_count / busy_sms, 1.0)
    lines = program_traits(context.programs).stores.lines
    return share_of_l2 * lines / (1.0 + (lines - 1.0) / (waves + 1.0))
