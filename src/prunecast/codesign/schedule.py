"""Pruning schedules: at once, gradually, or in stages that must hold an accuracy. They contain no tensors."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from prunecast.errors import BadInput
from prunecast.patterns.pattern import check_sparsity

CUBIC = 3
"""Power of the gradual curve (Zhu and Gupta, "To prune, or not to prune", 2017)."""


class Stage(NamedTuple):
    """Prune to a sparsity, then train."""

    sparsity: float
    """Sparsity of the layers pruned, in [0, 1)."""
    steps: int
    """Training steps before the metric is evaluated and the next stage begins."""
    floor: float | None = None
    """Least metric after the steps, or else pruning ends for the group. With None no metric is evaluated."""
    tries: int = 1
    """Number of times that the group may train for `steps` to reach the floor."""

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return self._asdict()


@dataclass(frozen=True, slots=True, kw_only=True)
class SparsitySchedule:
    """Stages of sparsity that never decreases.

    Parameters
    ----------
    name : `one-shot`, `gradual` or `staged`
    stages : at least one, in order
    delay_steps : training steps before the first stage

    Raises
    ------
    BadInput : no stage, a sparsity that decreases, or impossible counts
    """

    name: str
    stages: tuple[Stage, ...]
    delay_steps: int = 0

    def __post_init__(self) -> None:
        if not self.stages:
            raise BadInput(f"schedule {self.name}: wanted at least one stage, got none")
        if self.delay_steps < 0:
            raise BadInput(f"schedule {self.name}: delay_steps must be at least 0, got {self.delay_steps}")
        for stage in self.stages:
            _check_stage(self.name, stage)
        for before, after in pairwise(self.stages):
            _check_pair(self.name, before, after)

    @property
    def sparsity(self) -> float:
        """Sparsity of the last stage, in [0, 1)."""
        return self.stages[-1].sparsity

    @property
    def has_floor(self) -> bool:
        """True if the schedule needs a metric after each step."""
        return any(stage.floor is not None for stage in self.stages)

    def document(self) -> dict[str, Any]:
        """Return the JSON object that a recipe holds."""
        return {
            "name": self.name,
            "delay_steps": self.delay_steps,
            "stages": [stage.row() for stage in self.stages],
        }


def one_shot(sparsity: float, *, delay_steps: int = 0) -> SparsitySchedule:
    """Return a schedule with one stage after `delay_steps` training steps. Raise BadInput."""
    return SparsitySchedule(name="one-shot", stages=(Stage(sparsity, 0),), delay_steps=delay_steps)


def gradual(
    sparsity: float, *, updates: int, every: int, start: float = 0.0, delay_steps: int = 0
) -> SparsitySchedule:
    """Return a schedule of many small stages on a cubic curve: large steps first, small steps near the end.

    Parameters
    ----------
    sparsity : of the last update
    updates : number of stages; the last one comes `(updates - 1) * every` steps after the first
    every : training steps from one update to the next
    start : sparsity at which the curve begins, one update before the first
    delay_steps : training steps before the first update

    Raises
    ------
    BadInput : counts below 1, or a start above the sparsity
    """
    if min(updates, every) < 1:
        raise BadInput(f"schedule gradual: wanted updates and every from 1, got {updates} and {every}")
    levels = cubic_sparsities(sparsity, updates, start)
    waits = [every] * (updates - 1) + [0]
    stages = tuple(Stage(level, wait) for level, wait in zip(levels, waits, strict=True))
    return SparsitySchedule(name="gradual", stages=stages, delay_steps=delay_steps)


def cubic_sparsities(sparsity: float, updates: int, start: float = 0.0) -> tuple[float, ...]:
    """Return `updates` sparsities that rise along 1 - (1 - t)^3 to `sparsity`, which is reached exactly."""
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
    """Return a schedule of given sparsities with training after each.

    A layer group that misses a floor keeps its sparsity from then on.

    Parameters
    ----------
    sparsities : of the stages, never decreasing
    steps : training steps of one try of one stage
    floors : least metric after each stage; one number for all, or one per stage (None for no limit)
    tries : number of times that a stage may train for `steps` to reach its floor
    delay_steps : training steps before the first stage

    Raises
    ------
    BadInput : the number of floors is not that of the stages, or a value that `SparsitySchedule` refuses
    """
    wanted = [floors] * len(sparsities) if isinstance(floors, float | int | None) else list(floors)
    if len(wanted) != len(sparsities):
        raise BadInput(f"schedule staged: wanted {len(sparsities)} floors, one per stage, got {len(wanted)}")
    stages = tuple(
        Stage(sparsity, steps, floor, tries) for sparsity, floor in zip(sparsities, wanted, strict=True)
    )
    return SparsitySchedule(name="staged", stages=stages, delay_steps=delay_steps)


def _check_stage(name: str, stage: Stage) -> None:
    check_sparsity(stage.sparsity)
    if stage.steps < 0 or stage.tries < 1:
        raise BadInput(
            f"schedule {name}: wanted steps from 0 and tries from 1, got {stage.steps} and {stage.tries}"
        )
    if stage.floor is not None and stage.steps < 1:
        raise BadInput(f"schedule {name}: a stage with a floor must train for at least 1 step, got 0")


def _check_pair(name: str, before: Stage, after: Stage) -> None:
    if after.sparsity < before.sparsity:
        raise BadInput(
            f"schedule {name}: sparsity must not fall, got {after.sparsity} after {before.sparsity}"
        )
    if before.steps < 1:
        raise BadInput(f"schedule {name}: wanted at least 1 step between stages, got {before.steps}")
