"""Lower bounds of a plan's cycles, one per level of the roofline, valid for any schedule of its blocks."""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext, launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models.amounts import Amounts, launch_amounts, units_of
from prunecast.models.loops import busiest_sm
from prunecast.models.rates import OF_AN_SM, program_traits, sm_level_cycles, sm_rates
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import Traffic, plan_traffic
from prunecast.plan.kernel_plan import KernelPlan, Schedule


def bound_cycles(plan: KernelPlan, gpu: GpuSpec, clock_hz: float) -> dict[str, float]:
    """Return a dict from each level of `LEVELS` to a lower bound of the launch's cycles at an SM clock.

    The bound is the least number of cycles for which the level is busy: for l2 and dram that of the chip, for
    all other levels that of the busiest SM.

    tensor, issue, shared, l2 port
        A unit (a block with its list for the schedule STATIC, else an item) runs on one SM. With P SMs and
        units in descending order, one SM gets at least j + 1 of the j * P + 1 largest units. The bound is
        the maximum of total / P and of (j + 1) * unit[j * P] for every j. For the largest unit (j = 0),
        tensor work runs only on as many sub-partitions as the unit has warps with tensor instructions.
    l2
        Bytes through L2, reads and writes, divided by the achieved bandwidth.
    dram
        Bytes of every used piece of A and row of B, and of C, each once, divided by the bandwidths of reads
        and of writes.

    Raises
    ------
    BadInput : the GPU lacks instructions that the plan needs
    """
    context = launch_context(plan, gpu)
    amounts = launch_amounts(context)
    # The number of concurrent blocks affects only repeated reads, which are not part of a bound
    traffic = plan_traffic(context, memory_rules(context), amounts, resident_blocks=gpu.sm_count)
    return bounds_of(context, clock_hz, amounts, traffic)


def bounds_of(
    context: LaunchContext, clock_hz: float, amounts: Amounts, traffic: Traffic
) -> dict[str, float]:
    """Return the bounds of `bound_cycles`, computed from given work counts and traffic."""
    gpu = context.gpu
    rates = sm_rates(context.plan.dtype, context.plan.tensor, gpu)
    units = _units(context, amounts)
    sms = min(gpu.sm_count, context.plan.blocks)
    levels = sm_level_cycles(units.amounts, rates)
    bounds = {
        level: busiest_sm(cycles, units.members, np.argsort(-cycles, kind="stable"), sms)
        for level, cycles in levels.items()
    }
    partitions = min(float(rates.sub_partitions), amounts.tensor_warps)
    of_largest_unit = float(levels["tensor"].max(initial=0.0)) * rates.sub_partitions / partitions
    bounds["tensor"] = max(bounds["tensor"], of_largest_unit)
    bounds["l2"] = L2Seconds.of(context, amounts, traffic).all * clock_hz
    reads = (traffic.compulsory_bytes + traffic.merged_bytes - traffic.c_bytes) / gpu.dram_bytes_per_s
    bounds["dram"] = (reads + traffic.c_bytes / gpu.dram_write_bytes_per_s) * clock_hz
    return bounds


class L2Seconds(NamedTuple):
    """Seconds for which a launch occupies L2."""

    reads: float
    """Seconds of reads, as if all rows were aligned to lines."""
    requests: float
    """Seconds of read requests, including additional ones because rows are not aligned to lines. While all
    SMs work, the additional requests queue and pipeline stages hide the wait; they are served when fewer SMs
    work. They therefore limit only the time of a whole launch."""
    stores: float
    """Seconds of stores during which L2 serves no reads (`GpuSpec.l2_store_read_share`)."""
    merging: float
    """Seconds for which L2 is busy with stores if reads do not interfere. They include the merging of partly
    written sectors of C with their old content."""

    @classmethod
    def of(cls, context: LaunchContext, amounts: Amounts, traffic: Traffic) -> "L2Seconds":
        """Return the seconds for which a launch occupies L2; reads and stores have separate rates."""
        gpu, traits, step = context.gpu, program_traits(context.programs), amounts.step
        partials = float(amounts.kinds.members @ amounts.edges[:, Quantity.PARTIALS_OUT])
        stores = traffic.c_bytes + partials
        requests = (traffic.l2_bytes - stores) / gpu.l2_bytes_per_s
        # Cost of the reads of a full step, relative to as many bytes in whole lines
        more = (traits.gathered_lines - 1.0) * float(step[Quantity.B])
        over_reads = 1.0 + more / (float(step[Quantity.L2]) - more) if more else 1.0
        return cls(
            reads=requests / over_reads,
            requests=requests,
            stores=gpu.l2_store_read_share * stores / gpu.l2_store_bytes_per_s,
            merging=max(stores, traits.stores.lines * traffic.c_bytes) / gpu.l2_store_bytes_per_s,
        )

    @property
    def all(self) -> float:
        """Fewest seconds in which L2 serves all reads, stores and merges."""
        return max(self.requests + self.stores, self.merging)


class _Units(NamedTuple):
    """Work of the units that are scheduled as a whole."""

    amounts: FloatArray
    """(kinds of units, quantities of `OF_AN_SM`) work of one unit."""
    members: FloatArray
    """(kinds of units,) number of units."""


def _units(context: LaunchContext, amounts: Amounts) -> _Units:
    """Return the work of scheduled units: a row per block for the schedule STATIC, else per kind of item."""
    whole, block = amounts.whole[:, OF_AN_SM], amounts.block[OF_AN_SM]
    if context.plan.schedule is Schedule.STATIC:
        blocks = units_of(context.plan, whole[amounts.kinds.of_item])
        return _Units(blocks + block, np.ones(len(blocks)))
    return _Units(whole + block, amounts.kinds.members)
