"""`SimResult`: what a simulated run of a plan looked like."""

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from prunecast.hardware.occupancy import Occupancy

PIPES = ("tensor", "issue", "shared", "l2 port", "l2", "dram")
"""Units whose use is reported, from the SM outward."""

STALLS = (
    "issuing",
    "not selected",
    "wait data",
    "wait slot",
    "wait tensor",
    "wait load",
    "wait shared",
    "barrier",
    "fix-up",
    "fetch",
    "wait store",
)
"""Where a resident warp's cycles go; `issuing` is not a stall."""

ATTRIBUTION = (
    "ideal work",
    "imbalance",
    "tail",
    "fill and drain",
    "memory",
    "split fix-up",
    "other",
    "launch",
)
"""Where the time of the whole kernel goes; the parts add up to the total."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SimResult:
    """The outcome of one simulated launch.

    Parameters
    ----------
    seconds : time of the kernel, launch floor included
    cycles : SM cycles from the first block's start to the last block's end
    clock_hz : SM clock that turns cycles into seconds
    launch_s : launch floor inside `seconds`
    state : `burst` or `sustained`
    occupancy : blocks per SM and the limiting resource
    utilisation : share of `cycles` that each of `PIPES` worked, 0 to 1
    stalls : share of resident warp-cycles spent in each of `STALLS`; adds up to 1
    attribution_s : seconds by `ATTRIBUTION`; adds up to `seconds`
    sm_busy_cycles : (SMs,) int64, cycles with at least one resident block
    sm_tensor_cycles : (SMs,) int64, cycles in which the tensor pipes of the SM worked, mean of its four
    sm_items : (SMs,) int64, work items started on each SM
    l2_hit_rate : share of bytes read through L2 that were found there
    l2_bytes, dram_bytes : bytes moved
    warp_instructions : instructions issued, aggregates counted at their full length
    operations : program operations executed, aggregates counted once
    """

    seconds: float
    cycles: int
    clock_hz: float
    launch_s: float
    state: str
    occupancy: Occupancy
    utilisation: dict[str, float]
    stalls: dict[str, float]
    attribution_s: dict[str, float]
    sm_busy_cycles: npt.NDArray[Any]
    sm_tensor_cycles: npt.NDArray[Any]
    sm_items: npt.NDArray[Any]
    l2_hit_rate: float
    l2_bytes: int
    dram_bytes: int
    warp_instructions: int
    operations: int

    @property
    def bound(self) -> str:
        """The busiest of `PIPES`, or `latency` where none works half of the time.

        Of pipes within 3 % of each other the one nearest to the arithmetic: a wgmma tile of 128 x 256 keeps
        tensor pipes and shared memory equally busy by design.
        """
        highest = max(self.utilisation.values())
        busiest = next(pipe for pipe in PIPES if self.utilisation[pipe] >= 0.97 * highest)
        return busiest if highest >= 0.5 else "latency"
