"""Lower bounds of a plan's cycles, level by level: no order of events can beat any of them."""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext, launch_context
from prunecast.launch.memory import memory_rules
from prunecast.models.amounts import Amounts, launch_amounts, units_of
from prunecast.models.loops import busiest_sm
from prunecast.models.rates import SmRates, program_traits, sm_rates
from prunecast.models.terms import FloatArray, Quantity
from prunecast.models.traffic import Traffic, plan_traffic
from prunecast.plan.kernel_plan import KernelPlan, Schedule


def bound_cycles(plan: KernelPlan, gpu: GpuSpec, clock_hz: float) -> dict[str, float]:
    """Cycles that each of `LEVELS` must work at the given SM clock, on the chip or on its busiest SM.

    tensor, issue, shared, l2 port
        A unit (a block of a static list, else an item) runs on one SM, so the bound is the largest of: the
        total over the SMs that can work; and, with units sorted from the largest and P SMs, (j + 1) times
        unit j * P for every j, since of the j * P + 1 largest some SM gets j + 1. j = 0 is the longest
        unit, for whose tensor work only the sub-partitions of its own warps count.
    l2
        Bytes through L2, reads and writes, over its achieved bandwidth.
    dram
        Every used piece of A and row of B once, and C once, over the bandwidths of reads and of writes.

    Raises
    ------
    BadInput : the GPU lacks instructions that the plan needs
    """
    context = launch_context(plan, gpu)
    amounts = launch_amounts(context)
    # How many blocks run at once matters only for what is read again, which is no part of a bound.
    traffic = plan_traffic(context, memory_rules(context), amounts, resident_blocks=gpu.sm_count)
    return bounds_of(context, clock_hz, amounts, traffic)


def bounds_of(
    context: LaunchContext, clock_hz: float, amounts: Amounts, traffic: Traffic
) -> dict[str, float]:
    """`bound_cycles` from amounts and traffic that are known already."""
    gpu = context.gpu
    rates = sm_rates(context.plan, gpu)
    units = _units(context, amounts)
    sms = min(gpu.sm_count, context.plan.blocks)
    levels = sm_level_cycles(units.amounts, rates)
    bounds = {
        level: busiest_sm(cycles, units.members, np.argsort(-cycles, kind="stable"), sms)
        for level, cycles in levels.items()
    }
    partitions = min(float(rates.sub_partitions), amounts.tensor_warps)
    bounds["tensor"] = max(
        bounds["tensor"], float(levels["tensor"].max(initial=0.0)) * rates.sub_partitions / partitions
    )
    bounds["l2"] = L2Seconds.of(context, amounts, traffic).all * clock_hz
    reads = (traffic.compulsory_bytes + traffic.merged_bytes - traffic.c_bytes) / gpu.dram_bytes_per_s
    bounds["dram"] = (reads + traffic.c_bytes / gpu.dram_write_bytes_per_s) * clock_hz
    return bounds


class L2Seconds(NamedTuple):
    """Time that L2 works."""

    reads: float
    """Seconds of reads, counted as whole lines."""
    requests: float
    """Seconds of read requests, with those added by misaligned rows. They queue while all SMs work, which
    rings and the way to the SM hide, and catch up when fewer do: a bound of whole launches."""
    stores: float
    merging: float
    """Seconds of stores beside reads: L2 merges partial sectors with what is there."""

    @classmethod
    def of(cls, context: LaunchContext, amounts: Amounts, traffic: Traffic) -> "L2Seconds":
        """Reads and stores each at their own rate."""
        gpu, traits, step = context.gpu, program_traits(context.programs), amounts.step
        partials = float(amounts.kinds.members @ amounts.edges[:, Quantity.PARTIALS_OUT])
        stores = traffic.c_bytes + partials
        requests = (traffic.l2_bytes - stores) / gpu.l2_bytes_per_s
        # What reads of a full step cost, over as many bytes in whole lines
        more = (traits.gathered_lines - 1.0) * float(step[Quantity.B])
        over_reads = 1.0 + more / (float(step[Quantity.L2]) - more) if more else 1.0
        return cls(
            reads=requests / over_reads,
            requests=requests,
            stores=stores / gpu.l2_store_bytes_per_s,
            merging=traits.stores.lines * traffic.c_bytes / gpu.l2_store_bytes_per_s,
        )

    @property
    def all(self) -> float:
        """Least seconds of reads, stores and lines that are merged."""
        return max(self.requests + self.stores, self.merging)


def sm_level_cycles(amounts: FloatArray, rates: SmRates) -> dict[str, FloatArray]:
    """Cycles that the units of one SM work for amounts (..., quantities), by level."""
    fma, rate = amounts[..., Quantity.FMA], rates.tensor_fma_per_clk
    slots = np.maximum(amounts[..., Quantity.ISSUE], amounts[..., Quantity.FP32] * rates.fp32_cycles)
    return {
        "tensor": np.asarray(fma / rate if rate else np.zeros_like(fma)),
        "issue": np.asarray(slots / rates.sub_partitions),
        "shared": np.asarray(amounts[..., Quantity.SHARED] / rates.shared_bytes_per_clk),
        "l2 port": np.asarray(amounts[..., Quantity.PORT] / rates.port_bytes_per_clk),
    }


OF_AN_SM = slice(Quantity.PORT + 1)
"""Quantities that `sm_level_cycles` needs: a third of the cost of summing all."""


class _Units(NamedTuple):
    """What is placed as one: amounts (kinds, quantities of `OF_AN_SM`), and how many there are of each."""

    amounts: FloatArray
    members: FloatArray


def _units(context: LaunchContext, amounts: Amounts) -> _Units:
    """Blocks of a static list, else kinds of items."""
    whole, block = amounts.whole[:, OF_AN_SM], amounts.block[OF_AN_SM]
    if context.plan.schedule is Schedule.STATIC:
        blocks = units_of(context.plan, whole[amounts.kinds.of_item])
        return _Units(blocks + block, np.ones(len(blocks)))
    return _Units(whole + block, amounts.kinds.members)
