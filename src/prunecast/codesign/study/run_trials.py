"""Loop of a study: recover the trials of killed processes, reuse known results, compute the others.

A trial is marked as failed if its process died, or if it exceeds the requested number of trials. A trial of a
dead process is enqueued again if its settings are complete and no other trial has them. Recovery works
whatever a process was doing when it was killed.

The loop always ends, even on a damaged database. A process begins at most about twice as many trials as are
requested. It waits only for living processes of this host, and for processes of other hosts that send
heartbeats.
"""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from prunecast.codesign.search import TargetResult
from prunecast.codesign.study.evaluator import patterns_from
from prunecast.codesign.study.storage import GRACE_S, database_of, optuna_library, standing
from prunecast.errors import BadInput

RESULT = "result"
OWNER = "process"
REASON = "reason"
SAME_AS = "same as trial"
"""Names of attributes of a trial in the database, so that they must not change: result as JSON, process that
runs it (`owner`), reason why it has no result, and number of an earlier trial with the same settings."""
SURPLUS = "surplus"
"""Value of the attribute `REASON` of a trial that exceeds the requested number of trials. This happens if two
processes begin the last trial at the same time."""
TAKEN = ("COMPLETE", "PRUNED", "RUNNING")
"""States of trials that count as begun. Waiting trials do not count, since they may belong to a dead
process."""
POLL_S = 0.5
"""Seconds between two looks at the trials of other processes. Kind: choice."""
Evaluate = Callable[[Mapping[str, str]], TargetResult]
"""Additional pattern of each group of layers -> result; raises BadInput if the targets are not met."""


class _SurplusTrial(Exception):
    """Exception that ends a trial that is not needed, since all requested trials are finished or running."""


def run_trials(
    study: Any, groups: Sequence[str], evaluate: Evaluate, trials: int, on_progress: Callable[[int], None]
) -> int:
    """Run a study until it has `trials` finished trials; other processes may run it at the same time.

    Return the number of trials that this process computed.

    Parameters
    ----------
    study : Optuna study
    groups : names of the groups of layers
    evaluate : returns the result for additional patterns by group; raises BadInput if the targets are not met
    trials : number of finished trials at the end, including those of other processes
    on_progress : callback that gets the number of finished trials

    Raises
    ------
    BadInput : the database lost trials that were stored in it, or a heartbeat failed
    """
    computed = begun = 0
    heartbeats = _Heartbeats()

    def objective(trial: Any) -> float:
        nonlocal computed
        if standing(study, trial.number) >= trials:
            trial.set_user_attr(REASON, SURPLUS)
            raise _SurplusTrial
        trial.set_user_attr(OWNER, owner())
        patterns = patterns_from(trial.suggest_categorical, groups)
        known = _known(study, patterns, groups)
        if known is not None:
            trial.set_user_attr(SAME_AS, known.number)
            trial.set_user_attr(RESULT, known.user_attrs[RESULT])
            return float(known.value)
        computed += 1
        return _tried(trial, evaluate, patterns)

    # At most `trials` trials of this process finish. A surplus trial occurs only if another process began one
    # at the same moment, which is rare. More than twice as many trials mean that the database loses them.
    while begun <= 2 * trials:
        _take_back(study, groups, heartbeats)
        done = len(finished_trials(study))
        on_progress(done)
        if done >= trials:
            return computed
        # Trials of this and other processes that are finished or running
        taken = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name in TAKEN]
        if len(taken) < trials:
            begun += 1
            study.optimize(objective, n_trials=1, catch=(_SurplusTrial,), callbacks=[_check_end])
        else:
            time.sleep(POLL_S)
    raise BadInput(f"the study is damaged: it holds {done} finished trials after {begun} were run")


def _check_end(study: Any, trial: Any) -> None:
    """Raise BadInput if the database lost a trial's result; raise the error of a failed heartbeat."""
    surplus = trial.user_attrs.get(REASON) == SURPLUS
    if trial.state.name not in ("COMPLETE", "PRUNED") and not surplus:
        raise BadInput(f"the study is damaged: trial {trial.number} was computed and is {trial.state.name}")
    database_of(study).raise_heartbeat_error()


def _tried(trial: Any, evaluate: Evaluate, patterns: Mapping[str, str]) -> float:
    """Return the retained importance, which the study maximises; prune a trial that misses the targets."""
    try:
        result = evaluate(patterns)
    except BadInput as error:
        trial.set_user_attr(REASON, str(error))
        raise optuna_library().TrialPruned from None
    trial.set_user_attr("seconds", result.seconds)
    trial.set_user_attr(RESULT, result.document())
    return result.retained_importance


def finished_trials(study: Any) -> list[Any]:
    """Return the trials that have a result, or a reason why they have none, in the order of their numbers."""
    return [t for t in study.get_trials(deepcopy=False) if t.state.name in ("COMPLETE", "PRUNED")]


def trial_numbers(study: Any) -> dict[int, int]:
    """Return the number of a trial in Optuna -> its number in reports, for trials that have not failed.

    The number in reports does not count failed trials. A study that was killed and resumed thus has the same
    numbers as one that was never killed.
    """
    counted = (t for t in study.get_trials(deepcopy=False) if t.state.name != "FAIL")
    return {trial.number: number for number, trial in enumerate(counted)}


def check_study(study: Any, groups: Sequence[str]) -> None:
    """Raise BadInput if a study cannot have been written by this package, as in a damaged database."""
    directions = [direction.name for direction in study.directions]
    if directions != ["MAXIMIZE"]:
        raise BadInput(f"the study is damaged: its directions are {directions}, not ['MAXIMIZE']")
    trials = study.get_trials(deepcopy=False)
    if [trial.number for trial in trials] != list(range(len(trials))):
        raise BadInput("the study is damaged: its trials must be numbered 0, 1, 2, ... without a gap")
    complete = {trial.number for trial in trials if trial.state.name == "COMPLETE"}
    for trial in trials:
        _check_trial(trial)
        if trial.state.name in ("COMPLETE", "PRUNED") and patterns_of(trial, groups) is None:
            raise BadInput(
                f"trial {trial.number} of the study is damaged: settings of its patterns are missing"
            )
        same_as = trial.user_attrs.get(SAME_AS)
        if same_as is not None and same_as not in complete:
            raise BadInput(f"trial {trial.number} of the study is damaged: trial {same_as} has no result")


def _check_trial(trial: Any) -> None:
    """Raise BadInput for values that no process of this package stores; later code relies on that."""
    expected: tuple[tuple[str, Any, tuple[type, ...]], ...] = (
        ("value", trial.values[0] if trial.values else 0.0, (int, float)),
        ("datetime_start", trial.datetime_start, (datetime, type(None))),
        (OWNER, trial.user_attrs.get(OWNER, {}), (dict,)),
        (REASON, trial.user_attrs.get(REASON, ""), (str,)),
        (RESULT, trial.user_attrs.get(RESULT, {}), (dict,)),
        (SAME_AS, trial.user_attrs.get(SAME_AS, 0), (int,)),
        ("fixed_params", trial.system_attrs.get("fixed_params", {}), (dict,)),
        *((name, text, (str,)) for name, text in trial.params.items()),
    )
    for what, held, kinds in expected:
        if not isinstance(held, kinds) or held != held:  # NaN differs from itself
            raise BadInput(f"trial {trial.number} of the study is damaged: {what} is {held!r:.40}")
    state = trial.state.name
    if state == "COMPLETE" and not (trial.values and RESULT in trial.user_attrs):
        raise BadInput(f"trial {trial.number} of the study is damaged: it has no result")
    if trial.values and not math.isfinite(trial.values[0]):
        raise BadInput(f"trial {trial.number} of the study is damaged: its value is {trial.values[0]}")
    if state == "RUNNING" and trial.datetime_start is None:
        raise BadInput(f"trial {trial.number} of the study is damaged: it runs and has not started")


def patterns_of(trial: Any, groups: Sequence[str]) -> dict[str, str] | None:
    """Return group -> pattern from the stored settings of a trial.

    Return None if settings are missing, because the process died before all were drawn.
    """
    params = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
    try:
        return patterns_from(lambda name, _: params[name], groups)
    except KeyError:
        return None


def _known(study: Any, patterns: Mapping[str, str], groups: Sequence[str]) -> Any:
    complete = (t for t in finished_trials(study) if RESULT in t.user_attrs)
    return next((t for t in complete if patterns_of(t, groups) == patterns), None)


class _Heartbeats:
    """Last heartbeat of each running trial, with the local time at which this process first read it."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[Any, float]] = {}

    def stopped(self, study: Any, number: int) -> bool:
        """Return True if the heartbeat of a trial has not changed for `GRACE_S` seconds."""
        last = database_of(study).heartbeat(study, number)
        now = time.monotonic()
        if number not in self._seen or self._seen[number][0] != last:
            self._seen[number] = (last, now)
        return now - self._seen[number][1] > GRACE_S


def _is_abandoned(study: Any, trial: Any, heartbeats: _Heartbeats) -> bool:
    if OWNER not in trial.user_attrs:  # the process died before it wrote its id, or is about to
        silent_s: float = (datetime.now() - trial.datetime_start).total_seconds()
        return abs(silent_s) > GRACE_S
    process = trial.user_attrs[OWNER]
    if process.get("host") == socket.gethostname():
        return is_dead(process)
    return heartbeats.stopped(study, trial.number)


def _take_back(study: Any, groups: Sequence[str], heartbeats: _Heartbeats) -> None:
    """Mark the running trials of dead processes as failed; enqueue failed trials that must be repeated."""
    optuna = optuna_library()
    for trial in study.get_trials(deepcopy=False):
        if trial.state.name == "RUNNING" and _is_abandoned(study, trial, heartbeats):
            try:
                study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
            except (ValueError, optuna.exceptions.UpdateFinishedTrialError):
                continue  # another process was faster
    everything = study.get_trials(deepcopy=False)
    alive = [patterns_of(t, groups) for t in everything if t.state.name != "FAIL"]
    for trial in everything:
        if trial.state.name != "FAIL" or trial.user_attrs.get(REASON) == SURPLUS:
            continue
        owed = patterns_of(trial, groups)
        if owed is not None and owed not in alive:
            study.enqueue_trial({**trial.system_attrs.get("fixed_params", {}), **trial.params})
            alive.append(owed)


def owner() -> dict[str, Any]:
    """Return host, process id and start time of this process, which identify it.

    The start time distinguishes this process from a later one with the same id.
    """
    return {"host": socket.gethostname(), "pid": os.getpid(), "started": _started(os.getpid())}


def is_dead(stored: Any) -> bool:
    """Return True if a process of this host (as `owner` describes it) no longer exists.

    For processes of other hosts, the result is False; their heartbeats are checked instead.
    """
    if not isinstance(stored, dict) or stored.get("host") != socket.gethostname():
        return False
    pid = stored.get("pid")
    started = _started(pid) if isinstance(pid, int) else None
    return started is None or started != stored.get("started")


def _started(pid: int) -> str | None:
    """Return the clock ticks from boot to the start of a process; None if there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return None
    state, ticks = fields.split()[0], fields.split()[19]
    return None if state == "Z" else ticks
