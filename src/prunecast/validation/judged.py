"""Predict the measured cases, and summarise the errors of the predictions, log(predicted / measured)."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from prunecast.errors import BadInput
from prunecast.hardware import GpuSpec
from prunecast.kernels import KernelPlan
from prunecast.text import Cells, percent
from prunecast.validation.case import Case, Group
from prunecast.validation.case_maps import map_of, measured_plan, recorded_fingerprint
from prunecast.validation.records import Measurement
from prunecast.workload.engines import ENGINES, Engine, Outcome, Progress, silent

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorSummary:
    """Errors of predictions relative to measurements; 0.05 means 5 %.

    The log error of a case is log(predicted / measured).

    Parameters
    ----------
    cases : number of cases, each with a predicted and a measured time
    mape : mean of |predicted / measured - 1|
    p90 : exp(90th percentile of |log error|) - 1: nine of ten predictions differ by at most this fraction
    bias : exp(mean log error) - 1; above 0 the predictions are too slow
    worst : exp(log error) - 1 of the case with the largest |log error|
    worst_case : name of that case
    spearman : rank correlation of predicted and measured times, or None if ranks do not exist (fewer than two
        cases, or all times of one side equal)
    """

    cases: int
    mape: float
    p90: float
    bias: float
    worst: float
    worst_case: str
    spearman: float | None

    def cells(self) -> Cells:
        """Return the numbers as texts of a table, by heading."""
        return {
            "cases": str(self.cases),
            "MAPE": f"{percent(self.mape)} %",
            "p90": f"{percent(self.p90)} %",
            "bias": f"{100 * self.bias:+.1f} %",
            "worst": f"{100 * self.worst:+.0f} %",
            "Spearman": "-" if self.spearman is None else f"{self.spearman:.3f}",
        }


def log_error(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> FloatArray:
    """Return log(predicted / measured), the error of each pair of times; above 0 if predictions are too slow.

    Raises
    ------
    BadInput : shapes differ, or a time is not a positive finite number
    """
    times = [np.asarray(side, dtype=np.float64) for side in (predicted, measured)]
    if times[0].shape != times[1].shape:
        raise BadInput(
            f"predicted and measured times must pair up, got shapes {times[0].shape} and {times[1].shape}"
        )
    if not all(np.all(np.isfinite(side) & (side > 0)) for side in times):
        raise BadInput("predicted and measured times must be positive and finite")
    return np.log(times[0] / times[1])


def summarise_errors(predicted: npt.ArrayLike, measured: npt.ArrayLike, names: Sequence[str]) -> ErrorSummary:
    """Return the summary of the errors of cases.

    `predicted`, `measured` (times) and `names` have one entry per case, and at least one entry.
    """
    error = log_error(predicted, measured)
    if error.ndim != 1 or error.size == 0 or len(names) != error.size:
        raise BadInput(
            f"errors need one name per case and at least one case, got {len(names)} for {error.shape}"
        )
    worst = int(np.argmax(np.abs(error)))
    return ErrorSummary(
        cases=error.size,
        mape=float(np.mean(np.abs(np.expm1(error)))),
        p90=float(np.expm1(np.percentile(np.abs(error), 90))),
        bias=float(np.expm1(np.mean(error))),
        worst=float(np.expm1(error[worst])),
        worst_case=names[worst],
        spearman=_spearman(np.asarray(predicted, dtype=np.float64), np.asarray(measured, dtype=np.float64)),
    )


def _spearman(x: FloatArray, y: FloatArray) -> float | None:
    from scipy.stats import spearmanr  # slow to import

    if min(np.ptp(x), np.ptp(y)) == 0.0:
        return None
    return float(spearmanr(x, y).statistic)


class Predicted(NamedTuple):
    """Prediction of one engine: seconds, SM cycles, SM clock in MHz, and the unit that limits the kernel."""

    seconds: float
    cycles: float
    clock_mhz: float
    bound: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Row of a record with its predictions.

    Parameters
    ----------
    measured : row of the record
    predicted : name of each engine -> its prediction; empty if this version cannot plan the case
    imbalance : kept columns of the heaviest tile, divided by the mean of all tiles; 1 if there is no plan
    same_plan : True if this version makes the plan that was measured, or if the row is of a library, which
        has no plans
    note : reason why there is no prediction; empty if there is one
    """

    measured: Measurement
    predicted: Mapping[str, Predicted]
    imbalance: float
    same_plan: bool
    note: str = ""

    @property
    def case(self) -> Case:
        """Case of the row."""
        return self.measured.case

    @property
    def family(self) -> str:
        """Name of the kernel."""
        return self.measured.kernel

    @property
    def group(self) -> Group:
        """Kernel and conditions, by which tables of errors are grouped."""
        return Group(self.measured.kernel, self.case.conditions)

    @property
    def counts(self) -> bool:
        """True if the row is valid: it is usable and predicted, and this version makes the measured plan."""
        return self.measured.usable and bool(self.predicted) and self.same_plan

    def error(self, engine: str) -> float:
        """Return the predicted time of an engine divided by the measured time, minus 1."""
        return self.predicted[engine].seconds / float(self.measured.seconds or 1.0) - 1.0


def judge_rows(
    rows: Sequence[Measurement],
    gpu: GpuSpec,
    *,
    engines: Iterable[str] = ENGINES,
    progress: Progress = silent,
) -> list[Judged]:
    """Return every row of a record with the predictions of the engines, in the same order.

    The pruned map of consecutive rows that share it is computed only once.
    """
    names, maps = tuple(engines), dict[tuple[Any, ...], Any]()
    every = sorted({row.case.conditions for row in rows})
    run = {(name, at): Engine(name=name, gpu=gpu, conditions=at) for name in names for at in every}
    judged: list[Judged] = []
    waiting: deque[tuple[Judged, dict[str, Future[Outcome]]]] = deque()
    try:
        for place, row in enumerate(rows, 1):
            plan, note = _planned(row, gpu, maps)
            at = row.case.conditions
            futures = {name: run[name, at].start(plan) for name in names} if plan else {}
            waiting.append((_unpredicted(row, plan, note), futures))
            # Limit the queue: a plan can need megabytes of memory.
            while len(waiting) > (2 * (os.cpu_count() or 1) if place < len(rows) else 0):
                done, futures = waiting.popleft()
                predicted = {name: _predicted(future.result()) for name, future in futures.items()}
                judged.append(replace(done, predicted=predicted))
                progress("predicting", len(judged), len(rows))
    finally:
        for each in run.values():
            each.stop()
    return judged


def _planned(
    row: Measurement, gpu: GpuSpec, maps: dict[tuple[Any, ...], Any]
) -> tuple[KernelPlan | None, str]:
    case = row.case
    key = (case.m, case.k, case.pattern, case.sparsity, case.distribution, case.seed)
    try:
        if key not in maps:
            maps.clear()
            maps[key] = map_of(case)
        return measured_plan(row, maps[key], gpu), ""
    except BadInput as reason:
        return None, str(reason)


def _predicted(result: Outcome) -> Predicted:
    return Predicted(result.seconds, float(result.cycles), result.clock_hz * 1e-6, result.bound)


def _unpredicted(row: Measurement, plan: KernelPlan | None, note: str) -> Judged:
    """Return a row without predictions, with the properties of its plan or the reason why it has no plan."""
    if plan is None:
        return Judged(measured=row, predicted={}, imbalance=1.0, same_plan=False, note=note)
    kept = plan.tiles.kept_per_tile
    imbalance = float(kept.max() / kept.mean()) if kept.size and kept.any() else 1.0
    same = not row.plan or row.plan == recorded_fingerprint(plan)
    return Judged(measured=row, predicted={}, imbalance=imbalance, same_plan=same)


def groups_of(rows: Iterable[Judged], key: Callable[[Judged], Any]) -> dict[Any, list[Judged]]:
    """Group rows by the value that `key` returns for each; return value -> rows, in ascending order."""
    found: dict[Any, list[Judged]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return dict(sorted(found.items()))


def summarise(judged: Iterable[Judged], engine: str) -> ErrorSummary | None:
    """Return the errors of one engine on the valid rows (`Judged.counts`); None if there are none."""
    rows = [row for row in judged if row.counts]
    if not rows:
        return None
    return summarise_errors(
        [row.predicted[engine].seconds for row in rows],
        [float(row.measured.seconds or 0.0) for row in rows],
        [f"{row.case.name} {row.measured.kernel}" for row in rows],
    )


def errors_of_groups(
    rows: Iterable[Judged], key: Callable[[Judged], Any], engine: str
) -> dict[Any, ErrorSummary]:
    """Return the errors of one engine by group of `groups_of`, without groups that have no valid rows."""
    found = {name: summarise(own, engine) for name, own in groups_of(rows, key).items()}
    return {name: summary for name, summary in found.items() if summary}
