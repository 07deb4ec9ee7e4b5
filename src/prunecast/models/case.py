"""`Case`: a plan on a GPU, and what was found out about it before any time was."""

from typing import NamedTuple

from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.models.amounts import Amounts
from prunecast.models.chain import Chain
from prunecast.models.rates import SmRates
from prunecast.models.traffic import Traffic
from prunecast.plan.kernel_plan import KernelPlan


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
        return min(self.plan.blocks, self.context.held)

    @property
    def earlier_share(self) -> float:
        """Share of C that is stored before the last items of all blocks end."""
        return max(0.0, 1.0 - self.blocks_in_flight / max(int(self.plan.work.owner.sum()), 1))
