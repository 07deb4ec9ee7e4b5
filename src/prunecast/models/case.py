"""`Case`: a plan on a GPU, and what was found out about it before any time was."""

from typing import NamedTuple

import numpy as np

from prunecast.hardware.occupancy import Occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.launches.piled_up import places_of_lists
from prunecast.models.amounts import Amounts
from prunecast.models.chain import Chain
from prunecast.models.rates import SmRates
from prunecast.models.traffic import Traffic
from prunecast.plan.kernel_plan import KernelPlan, Schedule

__all__ = ["Case"]


class Case(NamedTuple):
    """A plan on a GPU, and what was found out about it before any time was."""

    plan: KernelPlan
    gpu: GpuSpec
    fit: Occupancy
    amounts: Amounts
    rates: SmRates
    traffic: Traffic
    steady_chain: Chain
    """Waits once the ring is full: what comes late is DRAM's share, which the chip's levels count."""

    @property
    def blocks_in_flight(self) -> int:
        """Blocks that run at once at the start."""
        return min(self.plan.blocks, self.gpu.sm_count * self.fit.blocks_per_sm)

    @property
    def earlier_share(self) -> float:
        """Share of C that is stored before the last items of all blocks end."""
        return max(0.0, 1.0 - self.blocks_in_flight / max(int(self.plan.work.owner.sum()), 1))

    @property
    def blocks_together(self) -> int:
        """Blocks on the SM that has most, of a plan that starts early."""
        fit, sms = self.fit.blocks_per_sm, self.gpu.sm_count
        if self.plan.schedule is not Schedule.STATIC:
            return max(min(fit, -(-self.plan.item_count // sms)), 1)
        places = places_of_lists(self.plan, fit, sms)[np.diff(self.plan.work.block_start) > 0]
        return max(min(fit, int(np.bincount(places % sms).max(initial=0))), 1)
