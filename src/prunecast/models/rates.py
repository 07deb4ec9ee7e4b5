"""Peak rates of one SM for a plan (the ceilings of its roofline), and properties of warp programs."""

from functools import lru_cache
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.models.terms import FloatArray, Quantity
from prunecast.plan.misaligned import StoreCost, gather_line_cost, store_cost
from prunecast.plan.program import Op, WarpProgram, has_producer_warps
from prunecast.plan.tensor_rate import tensor_fma_per_clk


class SmRates(NamedTuple):
    """Peak rates of one SM per cycle."""

    sub_partitions: int
    """Number of sub-partitions, each of which issues one instruction per cycle."""
    tensor_fma_per_clk: float
    """FMA per cycle of all tensor pipes of the SM, for the instruction and dtype of the plan; 0 if the plan
    uses no tensor cores."""
    fp32_cycles: float
    """Cycles for which one fp32 multiply-add of a full warp occupies the pipe of its sub-partition."""
    shared_bytes_per_clk: float
    """Bytes per cycle through the port of shared memory."""
    port_bytes_per_clk: float
    """Bytes per cycle from L2 into the SM."""


@lru_cache(maxsize=1024)
def sm_rates(dtype: str, tensor: str, gpu: GpuSpec) -> SmRates:
    """Return the peak rates of an SM for a number format and a tensor instruction of `KernelPlan.tensor`.

    Raises
    ------
    BadInput : the GPU does not have the tensor instruction
    """
    fp32_lanes = gpu.fp32_fma_per_clk_per_sm / gpu.sub_partitions_per_sm
    return SmRates(
        sub_partitions=gpu.sub_partitions_per_sm,
        tensor_fma_per_clk=tensor_fma_per_clk(gpu, dtype, tensor) if tensor != "none" else 0.0,
        fp32_cycles=max(1.0, 32.0 / fp32_lanes),
        shared_bytes_per_clk=float(gpu.shared_bytes_per_clk_per_sm),
        port_bytes_per_clk=float(gpu.l2_port_bytes_per_clk_per_sm),
    )


def sm_level_cycles(amounts: FloatArray, rates: SmRates) -> dict[str, FloatArray]:
    """Return a dict from each level inside an SM to its busy cycles, shape (...,).

    The levels are tensor, issue, shared and l2 port; `amounts` are work counts, shape (..., quantities).
    """
    fma, rate = amounts[..., Quantity.FMA], rates.tensor_fma_per_clk
    slots = np.maximum(amounts[..., Quantity.ISSUE], amounts[..., Quantity.FP32] * rates.fp32_cycles)
    return {
        "tensor": np.asarray(fma / rate if rate else np.zeros_like(fma)),
        "issue": np.asarray(slots / rates.sub_partitions),
        "shared": np.asarray(amounts[..., Quantity.SHARED] / rates.shared_bytes_per_clk),
        "l2 port": np.asarray(amounts[..., Quantity.PORT] / rates.port_bytes_per_clk),
    }


OF_AN_SM = slice(Quantity.PORT + 1)
"""Slice of the columns of `Amounts` that `sm_level_cycles` needs. Sums of only these columns need a third of
the time of sums of all columns. Kind: definition, `Quantity`."""


class ProgramTraits(NamedTuple):
    """Properties of the warp programs of a launch."""

    runs_ahead: bool
    """True if producer warps (which only fetch) start the next item while consumer warps finish this one."""
    waits_for_weights: bool
    """True if warps request weights, then column indices, and wait for both before they request rows of B."""
    weights_first: bool
    """True if warps request weights (A) before their first rows of B, which then arrive later."""
    waits: bool
    """True if warps wait for data or for other warps before the end of their block. False for CSR, whose
    warps go on with later elements, so that delays at DRAM cost nothing until DRAM is always busy."""
    waits_for_parts: bool
    """True if owners of split tiles wait for the partial sums; if False, another launch adds them."""
    gathered_lines: float
    """L2 time of gathered rows of B, relative to rows that are aligned to L2 lines (at least 1)."""
    stores: StoreCost
    """Costs of the stores of C, relative to rows that are aligned to L2 lines."""


@lru_cache(maxsize=1024)
def program_traits(programs: tuple[WarpProgram, ...]) -> ProgramTraits:
    """Return the properties of warp programs."""
    return ProgramTraits(
        runs_ahead=has_producer_warps(programs),
        waits_for_weights=any(
            i.op is Op.WAIT_LOAD
            and {Op.LOAD_A, Op.LOAD_INDEX} <= {before.op for before in program.begin[:place]}
            for program in programs
            for place, i in enumerate(program.begin)
        ),
        weights_first=any(
            i.op is Op.LOAD_A for p in programs for i in takewhile(lambda i: i.op is not Op.LOAD_B, p.begin)
        ),
        waits=any("WAIT" in i.op.name for p in programs for i in (*p.begin, *p.fill, *p.step, *p.end)),
        waits_for_parts=any(i.op is Op.WAIT_PARTS for program in programs for i in program.end),
        gathered_lines=gather_line_cost(programs),
        stores=store_cost(programs),
    )


def blocks_end_together(context: LaunchContext) -> bool:
    """Return True if the blocks of an SM end within a few k-steps of each other, in every wave.

    This is so for blocks that share an SM and copy through registers. A block that waits for its copies, for
    shared memory or for a barrier leaves the issue slots to another block, which keeps them for the products
    of a whole k-step, so that the blocks of an SM run k-step after k-step in turn.
    """
    return context.crowd > 1 and context.copies_through_registers


def store_rate(context: LaunchContext, together: float) -> float:
    """Return the bytes of C per cycle that L2 accepts from one SM: the harmonic mean over all waves of items.

    A last wave counts as a whole one even if few SMs work in it, since they determine when the launch ends.
    In the first wave SMs whose blocks end together share the bandwidth of L2. Then blocks drift apart: those
    whose stores L2 has served first begin their next items first, so that later stores pass at the rate of
    the SM's port. Blocks with producer warps stay in step (measured on the H200) and always share L2, and so
    do blocks of an SM that end together: no other block of the SM works while they store, so that all SMs
    change blocks at the same time in every wave. In their last wave, SMs that have no block left leave L2 to
    the others. Cycles are at the maximum clock.

    Parameters
    ----------
    together : fraction of SMs that store at the same time (`block_times.stores_together`)
    """
    plan, gpu = context.plan, context.gpu
    busy_sms = max(min(plan.blocks, gpu.sm_count), 1)
    share_of_l2 = gpu.l2_store_bytes_per_s / gpu.max_clock_hz / max(together * busy_sms, 1.0)
    # The extra L2 time of one wave's misaligned stores overlaps with the work of other waves, and half of the
    # stores of a single wave coincide (fitted to twelve products with padded rows, 0007)
    traits = program_traits(context.programs)
    lines = traits.stores.lines
    at_once = share_of_l2 * lines / (1.0 + (lines - 1.0) / (max(plan.item_count / busy_sms, 1.0) + 1.0))
    if traits.runs_ahead:
        return at_once
    in_flight = max(min(plan.blocks, context.held), 1)
    port = max(float(gpu.store_bytes_per_clk_per_sm), at_once)
    if blocks_end_together(context):
        waves = -(-plan.blocks // in_flight)
        last_sms = min(plan.blocks - (waves - 1) * in_flight, busy_sms)
        last = min(at_once * busy_sms / last_sms, port)
        return waves / ((waves - 1) / at_once + 1.0 / last)
    waves = max(-(-plan.item_count // in_flight), 1)
    return 1.0 / (1.0 / port + (1.0 / at_once - 1.0 / port) / waves)
