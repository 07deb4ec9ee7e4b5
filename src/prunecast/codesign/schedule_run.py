"""State of a running schedule, which counts training steps, evaluates the metric and returns the updates."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from prunecast.codesign.schedule import SparsitySchedule, Stage
from prunecast.errors import BadInput

EVERYTHING = "all"
"""Name of the only group if layers are not grouped."""

Metric = Callable[[], float]
"""Function that evaluates the model in its present state; a higher result is better."""


class Update(NamedTuple):
    """The groups of layers to prune now, and the sparsity to which they are pruned."""

    sparsity: float
    groups: tuple[str, ...]


class Measured(NamedTuple):
    """The metric of some groups after one try of a stage, and whether it reached the floor (`passed`)."""

    step: int
    sparsity: float
    groups: tuple[str, ...]
    metric: float
    passed: bool

    def row(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {**self._asdict(), "groups": list(self.groups)}


class _Visit(NamedTuple):
    stage: Stage
    groups: tuple[str, ...]


class ScheduleRun:
    """Run of the stages of a schedule, in order.

    In a stage with a floor, the groups are pruned one after another; in other stages, all at once. A group
    that misses a floor in all tries keeps its sparsity until the end (early stop), and the others continue.

    Parameters
    ----------
    schedule : the schedule to run
    groups : names of layer groups

    Raises
    ------
    BadInput : there is no group, or a name occurs twice
    """

    def __init__(self, schedule: SparsitySchedule, groups: Sequence[str] = (EVERYTHING,)) -> None:
        if not groups or len(set(groups)) != len(groups):
            raise BadInput(f"groups: wanted different names, at least one, got {list(groups)}")
        self.schedule = schedule
        self.step = 0
        self.stopped: dict[str, float] = {}
        """Group -> sparsity at which it missed a floor."""
        self.measured: list[Measured] = []
        self._groups = tuple(groups)
        self._visits = deque(_visits(schedule, self._groups))
        self._current: _Visit | None = None
        self._wait = schedule.delay_steps
        self._tries_left = 0
        self._begun = False

    @property
    def finished(self) -> bool:
        """True if no update and no evaluation of the metric will follow."""
        return self._begun and self._current is None and not self._visits

    def state(self) -> dict[str, Any]:
        """Return the progress as plain values, to be passed to `take_state` of an equal run."""
        return {
            "step": self.step,
            "stopped": dict(self.stopped),
            "measured": [measured.row() for measured in self.measured],
            "visits_left": len(self._visits),
            "current": None if self._current is None else list(self._current.groups),
            "wait": self._wait,
            "tries_left": self._tries_left,
            "begun": self._begun,
        }

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another run with the same schedule and groups."""
        self.step, self._wait, self._begun = state["step"], state["wait"], state["begun"]
        self._tries_left, self.stopped = state["tries_left"], dict(state["stopped"])
        self.measured = [Measured(**{**row, "groups": tuple(row["groups"])}) for row in state["measured"]]
        visits = _visits(self.schedule, self._groups)
        going, left = state["current"], len(visits) - state["visits_left"]
        self._visits = deque(visits[left:])
        self._current = None if going is None else _Visit(visits[left - 1].stage, tuple(going))

    def begin(self) -> Update | None:
        """Start the run; return the first update, or None if the schedule has a delay.

        Raises
        ------
        BadInput : the run has already begun
        """
        if self._begun:
            raise BadInput("a schedule begins once")
        self._begun = True
        return self._next() if self._wait == 0 else None

    def advance(self, metric: Metric | None = None) -> Update | None:
        """Count one training step; return the update that is due after it, or None.

        Parameters
        ----------
        metric : evaluates the model; called only at the end of a stage with a floor

        Raises
        ------
        BadInput : the run has not begun, or a metric is due and none is given or it returns NaN
        """
        if not self._begun:
            raise BadInput("a schedule must begin before it advances")
        self.step += 1
        if self.finished:
            return None
        self._wait -= 1
        if self._wait > 0:
            return None
        current = self._current
        if current is not None and current.stage.floor is not None and not self._passes(current, metric):
            self._tries_left -= 1
            if self._tries_left > 0:
                self._wait = current.stage.steps
                return None
            self.stopped.update(dict.fromkeys(current.groups, current.stage.sparsity))
        return self._next()

    def _passes(self, visit: _Visit, metric: Metric | None) -> bool:
        if metric is None:
            raise BadInput(f"schedule {self.schedule.name} has a floor: wanted a metric, got none")
        value, floor = float(metric()), visit.stage.floor
        if value != value or floor is None:
            raise BadInput(f"metric: wanted a number, got {value}")
        passed = value >= floor
        self.measured.append(Measured(self.step, visit.stage.sparsity, visit.groups, value, passed))
        return passed

    def _next(self) -> Update | None:
        self._current = None
        while self._visits and self._current is None:
            stage, groups = self._visits.popleft()
            going = tuple(group for group in groups if group not in self.stopped)
            self._current = _Visit(stage, going) if going else None
        if self._current is None:
            return None
        stage, groups = self._current
        self._wait, self._tries_left = stage.steps, stage.tries
        if not self._visits and stage.floor is None:
            self._current = None
        return Update(stage.sparsity, groups)


def _visits(schedule: SparsitySchedule, groups: tuple[str, ...]) -> list[_Visit]:
    visits = []
    for stage in schedule.stages:
        together = [groups] if stage.floor is None else [(group,) for group in groups]
        visits += [_Visit(stage, part) for part in together]
    return visits
