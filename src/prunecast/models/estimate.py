"""`Estimate`: what the closed-form model says about a plan."""

from dataclasses import dataclass

from prunecast.hardware.occupancy import Occupancy

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
    bound_cycles : lower bound of the cycles by level of `LEVELS`; none of them can be beaten
    step_cycles : cycles of one full k-step by level, for one block that has the SM to its share
    waves : work of the busiest SM over work of one item
    balance : mean over maximum of the work per SM, 1 is perfect
    """

    seconds: float
    cycles: float
    clock_hz: float
    launch_s: float
    state: str
    occupancy: Occupancy
    bound_cycles: dict[str, float]
    step_cycles: dict[str, float]
    waves: float
    balance: float

    @property
    def bound(self) -> str:
        """The level with the highest lower bound, or `latency` where it explains less than half of the time.

        Of levels within 3 % of each other the one nearest to the arithmetic, as in the simulator's result.
        """
        highest = max(self.bound_cycles.values())
        level = next(level for level in LEVELS if self.bound_cycles[level] >= 0.97 * highest)
        return level if highest >= 0.5 * self.cycles else "latency"
