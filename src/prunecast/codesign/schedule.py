"""Pruning schedules: one-shot, gradual, or in stages that must keep a metric such as accuracy.

A schedule lists sparsities and training steps. It contains no tensors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.patterns.pattern import check_sparsity

CUBIC = 3
"""Exponent of the gradual curve (Zhu and Gupta, "To prune, or not to prune", 2017)."""


class Stage(NamedTuple):
    """One stage of a schedule: prune to a sparsity, then train.

    After `steps` training steps, the metric must be at least `floor`, unless `floor` is None. Otherwise the
    group of layers trains again, up to `tries` times in total, and then keeps its sparsity until the end.
    """

    sparsity: float
    """Sparsity of the layers that are pruned, in [0, 1)."""
    steps: int
    """Training steps before the metric is evaluated and the next stage begins."""
    floor: float | None = None
    """Least metric after `steps` training steps. A group of layers below it is not pruned further. None means
    that no metric is evaluated."""
    tries: int = 1
    """Number of times that a group may train for `steps` steps to reach the floor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparsitySchedule:
    """A sequence of stages whose sparsity never decreases.

    Parameters
    ----------
    name : `one-shot`, `gradual` or `staged`
    stages : the stages in order, at least one
    delay_steps : training steps before the first stage

    Raises
    ------
    BadInput : there is no stage, the sparsity decreases, or a count is out of range
    """

    name: str
    stages: tuple[Stage, ...]
    delay_steps: int = 0

    def __post_init__(self) -> None:
        head = f"schedule {self.name}"
        if not self.stages:
            raise BadInput(f"{head}: wanted at least one stage, got none")
        if self.delay_steps < 0:
            raise BadInput(f"{head}: delay_steps must be at least 0, got {self.delay_steps}")
        for one in self.stages:
            check_sparsity(one.sparsity)
            if one.steps < 0 or one.tries < 1:
                got = f"{one.steps} and {one.tries}"
                raise BadInput(f"{head}: wanted steps from 0 and tries from 1, got {got}")
            if one.floor is not None and one.steps < 1:
                raise BadInput(f"{head}: a stage with a floor must train for at least 1 step, got 0")
        for before, after in pairwise(self.stages):
            if after.sparsity < before.sparsity:
                got = f"{after.sparsity} after {before.sparsity}"
                raise BadInput(f"{head}: sparsity must not fall, got {got}")
            if before.steps < 1:
                raise BadInput(f"{head}: wanted at least 1 step between stages, got {before.steps}")

    @property
    def sparsity(self) -> float:
        """Sparsity of the last stage, in [0, 1)."""
        return self.stages[-1].sparsity

    @property
    def has_floor(self) -> bool:
        """True if a stage has a floor (a least value of the metric), so that the schedule needs a metric."""
        return any(stage.floor is not None for stage in self.stages)

    def document(self) -> dict[str, Any]:
        """Return the schedule as a JSON object, which recipes contain."""
        return {
            "name": self.name,
            "delay_steps": self.delay_steps,
            "stages": [stage._asdict() for stage in self.stages],
        }


def one_shot(sparsity: float, *, delay_steps: int = 0) -> SparsitySchedule:
    """Return a schedule with one stage, which begins after `delay_steps` training steps.

    Raises
    ------
    BadInput : the sparsity is not in [0, 1), or the delay is negative
    """
    return SparsitySchedule(name="one-shot", stages=(Stage(sparsity, 0),), delay_steps=delay_steps)


def gradual(
    sparsity: float, *, updates: int, every: int, start: float = 0.0, delay_steps: int = 0
) -> SparsitySchedule:
    """Return a schedule of many small stages (updates) whose sparsity rises along a cubic curve.

    The sparsity rises fast at first and slowly near the end.

    Parameters
    ----------
    sparsity : sparsity of the last update
    updates : number of updates; the last one comes `(updates - 1) * every` training steps after the first
    every : training steps from one update to the next
    start : sparsity at which the curve begins; the first update is already one step above it
    delay_steps : training steps before the first update

    Raises
    ------
    BadInput : a count is below 1, or `start` is above `sparsity`
    """
    if min(updates, every) < 1:
        raise BadInput(f"schedule gradual: wanted updates and every from 1, got {updates} and {every}")
    levels = cubic_sparsities(sparsity, updates, start)
    waits = [every] * (updates - 1) + [0]
    stages = tuple(Stage(level, wait) for level, wait in zip(levels, waits, strict=True))
    return SparsitySchedule(name="gradual", stages=stages, delay_steps=delay_steps)


def cubic_sparsities(sparsity: float, updates: int, start: float = 0.0) -> tuple[float, ...]:
    """Return start + (sparsity - start) (1 - (1 - t)^3) for t = 1 / updates, 2 / updates, ..., 1.

    The last sparsity equals `sparsity` exactly.
    """
    remaining = ((1.0 - (i + 1) / updates) ** CUBIC for i in range(updates))
    return tuple(sparsity + (start - sparsity) * left for left in remaining)


def staged(
    sparsities: Sequence[float],
    *,
    steps: int,
    floors: float | Sequence[float | None] | None = None,
    tries: int = 1,
    delay_steps: int = 0,
) -> SparsitySchedule:
    """Return a schedule with the given sparsities and training after each.

    A group of layers that misses a floor keeps its sparsity from then on.

    Parameters
    ----------
    sparsities : sparsity of each stage, never decreasing
    steps : training steps of one try of a stage
    floors : least metric after each stage: one number for all, or one per stage (None for no limit)
    tries : number of times that a stage may train for `steps` steps to reach its floor
    delay_steps : training steps before the first stage

    Raises
    ------
    BadInput : there are not as many floors as stages, or `SparsitySchedule` refuses a value
    """
    wanted = [floors] * len(sparsities) if isinstance(floors, float | int | None) else list(floors)
    if len(wanted) != len(sparsities):
        raise BadInput(f"schedule staged: wanted {len(sparsities)} floors, one per stage, got {len(wanted)}")
    stages = tuple(
        Stage(sparsity, steps, floor, tries) for sparsity, floor in zip(sparsities, wanted, strict=True)
    )
    return SparsitySchedule(name="staged", stages=stages, delay_steps=delay_steps)
