"""`Case`: a plan on a GPU with its work counts, rates and traffic; `Estimate`: the predicted time."""

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
    clock_hz : SM clock that turns cycles into seconds
    launch_s : launch floor inside `seconds`: least time from one launch to the next
    written_share : bytes that DRAM writes, divided by all bytes that it reads and writes
    state : `burst` or `sustained`
    occupancy : blocks per SM and the limiting resource
    explained : returns the intermediate quantities of the time, which are computed at the first call
    """

    seconds: float
    cycles: float
    clock_hz: float
    launch_s: float
    written_share: float
    state: str
    occupancy: Occupancy
    explained: Callable[[], "Explained"] = field(repr=False)

    @property
    def bound_cycles(self) -> dict[str, float]:
        """Level of `LEVELS` -> lower bound of the cycles."""
        return self.explained().bound_cycles

    @property
    def step_cycles(self) -> dict[str, float]:
        """Level of `LEVELS` -> cycles for which one full k-step of all resident blocks occupies the level."""
        return self.explained().step_cycles

    @property
    def waves(self) -> float:
        """Work of the busiest SM divided by the mean work of an item."""
        return self.explained().waves

    @property
    def balance(self) -> float:
        """Mean work per SM divided by the maximum, 0 to 1; 1 is perfect balance."""
        return self.explained().balance

    @property
    def bound(self) -> str:
        """Level with the highest lower bound; `latency` if that bound is below half of the cycles.

        If several levels are within 3 % of the highest, the first of them in `LEVELS` counts.
        """
        highest = max(self.bound_cycles.values())
        level = next(level for level in LEVELS if self.bound_cycles[level] >= 0.97 * highest)
        return level if highest >= 0.5 * self.cycles else "latency"


class Explained(NamedTuple):
    """Intermediate quantities of an estimate; properties of the same names in `Estimate` describe them."""

    bound_cycles: dict[str, float]
    step_cycles: dict[str, float]
    waves: float
    balance: float


class Case(NamedTuple):
    """A plan on a GPU with its work counts, rates and traffic: all inputs of the time estimate."""

    context: LaunchContext
    plan: KernelPlan
    """Plan of `context`."""
    gpu: GpuSpec
    """GPU of `context`."""
    rules: MemoryRules
    traits: ProgramTraits
    amounts: Amounts
    rates: SmRates
    traffic: Traffic
    blocks_in_flight: int
    """Number of blocks that start at once when the launch begins."""
    before_data: float
    """Cycles at the start of a launch in which no data arrive; 0 for co-resident launches. The first block
    must have started (unless its prologue is hidden), its fetching warps have requested data, and the first
    read has returned from DRAM."""
    weights_delay_rows: bool
    """True if blocks of the first wave request weights at once, and rows of B after them, so that DRAM serves
    the weights of all blocks first. False for co-resident launches and hidden prologues, whose weights DRAM
    serves in part during the preceding launch, and for copies through registers, whose blocks start one after
    another."""

    @property
    def first_reads_s(self) -> float:
        """Seconds for which reads of the first wave occupy DRAM, including the C that they evict from L2."""
        traffic, gpu = self.traffic, self.gpu
        reads = traffic.waves.read_bytes
        first = float(reads[0] / reads.sum()) if reads.any() else 1.0
        evicted_s = traffic.read_share * traffic.written_bytes / gpu.dram_write_bytes_per_s
        return ((traffic.dram_bytes - traffic.written_bytes) / gpu.dram_bytes_per_s + evicted_s) * first
