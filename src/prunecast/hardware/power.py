"""Model of board power and launch time while a launch is repeated for several seconds, at the power limit.

The activity that determines the SM clock (`clock.py`) also determines the power. Without a power limit it is

    P0 = idle + (limit - idle) * busy * (static + slope * activity)

where busy = t / (t + gap) accounts for the time between launches. The board does not exceed its limit, which
the power approaches smoothly:

    P = (P0^-p + (share * limit)^-p)^(-1/p)    and the launch needs    t * (P0 / P)^g

t is the time of a launch in the state `sustained`, which is measured over about a second; after several
seconds a launch needs the longer time above. The constants (gap, static, slope, share, p, g) are in
`power_costs/sm_*.toml`.
"""

from functools import cache
from importlib import resources
from typing import NamedTuple

from prunecast.hardware.clock import IDLE_SHARE
from prunecast.hardware.costs import Costs, read_costs
from prunecast.hardware.spec import GpuSpec


class LaunchPower(NamedTuple):
    """Power and time of a launch that repeats for several seconds."""

    watts: float
    """Mean power of the board in W."""
    seconds: float
    """Time of a launch in seconds, at this power."""

    @property
    def joules(self) -> float:
        """Energy of a launch in joules."""
        return self.watts * self.seconds


def launch_power(
    gpu: GpuSpec, seconds: float, activity: float, numbers: Costs | dict[str, float] | None = None
) -> LaunchPower:
    """Return the mean board power and the time of a launch that is repeated for several seconds.

    Parameters
    ----------
    seconds : time of a launch in the state `sustained`
    activity : mean activity over this time, see `clock.activity_of`
    numbers : constants of the power model (`gap_s`, `static_share`, ...); None for the fitted ones of the
        GPU's architecture
    """
    numbers = numbers if numbers is not None else power_costs(gpu.compute_capability)
    idle_w = IDLE_SHARE * gpu.power_limit_w
    busy = seconds / (seconds + numbers["gap_s"])
    loaded = numbers["static_share"] + numbers["activity_slope"] * activity
    free_w = idle_w + (gpu.power_limit_w - idle_w) * busy * loaded
    held_w, p = numbers["limit_share"] * gpu.power_limit_w, numbers["exponent"]
    watts = float((free_w**-p + held_w**-p) ** (-1.0 / p))
    return LaunchPower(watts, float(seconds * (free_w / watts) ** numbers["slowing"]))


@cache
def power_costs(compute_capability: int) -> Costs:
    """Return the fitted constants of the power model for a compute capability (90 for 9.0)."""
    return read_costs(resources.files(__package__) / "power_costs", "power", compute_capability)
