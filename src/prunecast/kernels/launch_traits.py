"""`LaunchTraits`: what a kernel knows of its launches that a plan does not say."""

from collections.abc import Callable
from typing import NamedTuple

from prunecast.plan.program import WarpProgram


class LaunchTraits(NamedTuple):
    """What a kernel knows of the launches of one plan on one GPU."""

    co_resident: bool = False
    """Under PDL blocks of the next launch find room beside those of this one, and each has one item."""
    registers_per_thread: int = 0
    """As compiled for the GPU; 0 where they are what the plan says."""
    cycles_per_column: float = 0.0
    """Cycles of a block per kept column, by which blocks of unequal tiles end apart."""
    prologue: Callable[[float], tuple[WarpProgram, ...]] | None = None
    """Programs if such a share of a launch's blocks has run its prologue when the preceding launch ends; None
    where that changes none."""
    b_in_l2: bool = False
    """Weights are read to be evicted first, so that L2 keeps B."""
    other_launches_s: float = 0.0
    """Seconds of what a library launches besides this kernel."""
