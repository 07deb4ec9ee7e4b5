"""`Case`: a plan on a GPU, and what was found out about it before any time was."""

from typing import NamedTuple

from prunecast.hardware.occupancy import Occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.kernels.plan import KernelPlan
from prunecast.models.amounts import Amounts
from prunecast.models.chain import Chain
from prunecast.models.rates import SmRates
from prunecast.models.traffic import Traffic

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
        """Blocks on the SM that has most."""
        return max(min(self.fit.blocks_per_sm, self.plan.item_count), 1)
