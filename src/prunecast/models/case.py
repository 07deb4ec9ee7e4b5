"""`Case`: a plan on a GPU, and what was found out about it before any time was."""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.models.amounts import Amounts
from prunecast.models.chain import Chain
from prunecast.models.rates import SmRates
from prunecast.models.traffic import Traffic
from prunecast.plan.kernel_plan import KernelPlan, Schedule

__all__ = ["Case"]


class Case(NamedTuple):
    """A plan on a GPU, and what was found out about it before any time was."""

    context: LaunchContext
    amounts: Amounts
    rates: SmRates
    traffic: Traffic
    steady_chain: Chain
    """Waits once the ring is full: what comes late is DRAM's share, which the chip's levels count."""

    @property
    def plan(self) -> KernelPlan:
        """What is launched."""
        return self.context.plan

    @property
    def gpu(self) -> GpuSpec:
        """Where."""
        return self.context.gpu

    @property
    def blocks_in_flight(self) -> int:
        """Blocks that run at once at the start."""
        return min(self.context.blocks, self.gpu.sm_count * self.context.fit.blocks_per_sm)

    @property
    def earlier_share(self) -> float:
        """Share of C that is stored before the last items of all blocks end."""
        return max(0.0, 1.0 - self.blocks_in_flight / max(int(self.plan.work.owner.sum()), 1))

    @property
    def blocks_together(self) -> int:
        """Blocks on the SM that has most, of a plan that starts early."""
        fit, sms = self.context.fit.blocks_per_sm, self.gpu.sm_count
        if self.context.schedule is not Schedule.STATIC:
            return max(min(fit, -(-self.plan.item_count // sms)), 1)
        places = self.context.places[np.diff(self.context.work.block_start) > 0]
        return max(min(fit, int(np.bincount(places % sms).max(initial=0))), 1)
