"""`Case`: a plan on a GPU, and what was found out about it before any time was; `Estimate`: its time."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from prunecast.hardware.occupancy import Occupancy
from prunecast.hardware.spec import GpuSpec
from prunecast.launch import LaunchContext
from prunecast.launch.memory import MemoryRules
from prunecast.models.amounts import Amounts
from prunecast.models.rates import ProgramTraits, SmRates
from prunecast.models.traffic import Traffic
from prunecast.plan.kernel_plan import KernelPlan

LEVELS = ("tensor", "issue", "shared", "l2 port", "l2", "dram")
"""Levels of the roofline, from the SM outward; the same names as the simulator's pipes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Estimate:
    """The closed-form time of one launch.

    Parameters
    ----------
    seconds : time of the kernel, launch floor included
    cycles : SM cycles without the launch floor
    clock_hz, launch_s, state : as in the simulator's result
    occupancy : blocks per SM and the limiting resource
    explained : what explains the time, worked out when it is first asked for
    """

    seconds: float
    cycles: float
    clock_hz: float
    launch_s: float
    state: str
    occupancy: Occupancy
    explained: Callable[[], "Explained"] = field(repr=False)

    @property
    def bound_cycles(self) -> dict[str, float]:
        """Lower bound of the cycles by level of `LEVELS`; none of them can be beaten."""
        return self.explained().bound_cycles

    @property
    def step_cycles(self) -> dict[str, float]:
        """Cycles of one full k-step by level, for one block that has the SM to its share."""
        return self.explained().step_cycles

    @property
    def waves(self) -> float:
        """Work of the busiest SM over work of one item."""
        return self.explained().waves

    @property
    def balance(self) -> float:
        """Mean over maximum of the work per SM, 1 is perfect."""
        return self.explained().balance

    @property
    def bound(self) -> str:
        """The level with the highest lower bound, or `latency` where it explains less than half of the time.

        Of levels within 3 % of each other the one nearest to the arithmetic, as in the simulator's result.
        """
        highest = max(self.bound_cycles.values())
        level = next(level for level in LEVELS if self.bound_cycles[level] >= 0.97 * highest)
        return level if highest >= 0.5 * self.cycles else "latency"


class Explained(NamedTuple):
    """Intermediate quantities of an estimated time; `Estimate` describes each."""

    bound_cycles: dict[str, float]
    step_cycles: dict[str, float]
    waves: float
    balance: float


class Case(NamedTuple):
    """A plan on a GPU, and what was found out about it before any time was."""

    context: LaunchContext
    plan: KernelPlan
    """The launch: the plan of `context`."""
    gpu: GpuSpec
    """The GPU of `context`."""
    rules: MemoryRules
    traits: ProgramTraits
    amounts: Amounts
    rates: SmRates
    traffic: Traffic

    @property
    def blocks_in_flight(self) -> int:
        """Blocks that run at once at the start."""
        return min(self.plan.blocks, self.context.held)

    @property
    def earlier_share(self) -> float:
        """Share of C that is stored before the last items of all blocks end."""
        return max(0.0, 1.0 - self.blocks_in_flight / max(int(self.plan.work.owner.sum()), 1))
