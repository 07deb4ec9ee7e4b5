"""Studies go on after a kill at any point, as if nothing had been."""

import collections
import json
import signal
import socket
import sqlite3
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("optuna")

from prunecast.codesign.study.run_trials import (
    OWNER,
    check_study,
    finished_trials,
    is_dead,
    owner,
    run_trials,
    trial_numbers,
)
from prunecast.codesign.study.storage import StudyStorage
from prunecast.errors import BadInput
from tests.codesign.study.toy_study import GROUPS, evaluated, open_study, run_toy, story, toy_result

run_trials_module = import_module("prunecast.codesign.study.run_trials")
search_model_module = import_module("prunecast.codesign.study.search_model")
ROOT = Path(__file__).parents[3]
TRIALS = 9


def start(folder, trials, seed, commit):
    arguments = [sys.executable, "-m", "tests.codesign.study.toy_study", str(folder)]
    return subprocess.Popen([*arguments, str(trials), str(seed), str(commit)], cwd=ROOT)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run_toy(folder, TRIALS, seed=3)
    return story(folder)


def test_the_same_seed_draws_the_same_and_another_does_not(tmp_path, uninterrupted):
    run_toy(tmp_path, TRIALS, seed=4)
    assert story(tmp_path) != uninterrupted
    assert len(uninterrupted) == TRIALS


def test_trials_reached_in_two_runs_are_those_of_one(tmp_path, uninterrupted):
    run_toy(tmp_path, 5, seed=3)
    run_toy(tmp_path, TRIALS, seed=3)
    assert story(tmp_path) == uninterrupted


def test_a_rerun_computes_nothing(tmp_path):
    assert run_toy(tmp_path, 6, seed=0) > 0
    before = evaluated(tmp_path)
    assert run_toy(tmp_path, 6, seed=0) == 0
    assert evaluated(tmp_path) == before


@pytest.mark.parametrize("commit", [1, 20, 22, 23, 24, 26, 28, 50])
def test_a_killed_study_goes_on_as_if_nothing_had_been(tmp_path, uninterrupted, commit):
    """Some of these commits lie before a trial's settings are drawn, some between them, some behind."""
    assert start(tmp_path, TRIALS, 3, commit).wait(1800) == -signal.SIGKILL
    finished_before = len(story(tmp_path))
    computed_before = evaluated(tmp_path) if (tmp_path / "evaluated").exists() else []
    assert len(computed_before) <= finished_before + 1
    run_toy(tmp_path, TRIALS, seed=3)
    assert story(tmp_path) == uninterrupted
    twice = [text for text, times in collections.Counter(evaluated(tmp_path)).items() if times > 1]
    assert twice in ([], computed_before[-1:])  # at most the one whose result was not yet stored


def test_settings_that_are_known_are_looked_up(tmp_path):
    study = open_study(tmp_path, 0)
    plain = {f"{group} family": "nothing" for group in GROUPS}
    calls = []

    def evaluate(patterns):
        calls.append(patterns)
        return toy_result({"worth": "something"})

    for _ in range(3):
        study.enqueue_trial(plain)
    assert run_trials(study, GROUPS, evaluate, 3, lambda done: None) == 1
    assert calls == [{}]
    assert [t.user_attrs.get("same as trial") for t in finished_trials(study)] == [None, 0, 0]


def test_processes_share_the_trials(tmp_path):
    open_study(tmp_path, 0)
    running = [start(tmp_path, 16, 0, 10**9) for _ in range(3)]
    assert [process.wait(1800) for process in running] == [0, 0, 0]
    assert len(story(tmp_path)) == 16
    assert len(evaluated(tmp_path)) <= 16


def test_a_process_of_another_machine_is_left_alone(tmp_path):
    study = open_study(tmp_path, 0)
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = study.ask()
    trial.set_user_attr(OWNER, {"host": "elsewhere", "pid": 1, "started": "1"})
    run_toy(tmp_path, 0, seed=0)
    assert [t.state.name for t in study.get_trials()] == ["RUNNING"]


def damaged(folder, *statements):
    """Change the database of a toy study."""
    connection = sqlite3.connect(folder / "study.sqlite")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("DELETE FROM study_directions", "trial 3 was computed and is FAIL"),
        (
            "ALTER TABLE trial_heartbeats RENAME COLUMN heartbeat TO gone",
            "no such column: trial_heartbeats.heartbeat",
        ),
        (
            "CREATE TRIGGER t AFTER UPDATE ON trials BEGIN DELETE FROM trials WHERE trial_id > 3; END",
            "study",
        ),
    ],
)
def test_a_database_that_keeps_no_trials_ends_the_loop(tmp_path, monkeypatch, statement, line):
    monkeypatch.delenv("PRUNECAST_TEST_DATABASE", raising=False)
    run_toy(tmp_path, 3, seed=3)
    damaged(tmp_path, statement)
    kept_in = StudyStorage(str(tmp_path / "study.sqlite"))
    with pytest.raises(BadInput, match=line) as caught, kept_in.errors():
        run_toy(tmp_path, 6, seed=3)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("statement", "line"),
    [
        ("DELETE FROM study_directions", "its directions are"),
        ("UPDATE study_directions SET direction = 'MINIMIZE'", "its directions are"),
        ("UPDATE trials SET number = 7 WHERE number = 2", "must be numbered 0, 1, 2"),
        ("UPDATE trials SET state = 'RUNNING', datetime_start = NULL WHERE number = 2", "has not started"),
        ("UPDATE trial_values SET value = NULL, value_type = 'INF_POS'", "its value is inf"),
        (
            "UPDATE trial_user_attributes SET key = 'same as trial', value_json = '9' WHERE key = 'process'",
            "trial 9 has no result",
        ),
        ("DELETE FROM trial_params", "settings of its patterns are missing"),
    ],
)
def test_a_damaged_study_is_refused_before_it_is_used(tmp_path, monkeypatch, statement, line):
    monkeypatch.delenv("PRUNECAST_TEST_DATABASE", raising=False)
    run_toy(tmp_path, 3, seed=3)
    check_study(open_study(tmp_path, 0), GROUPS)
    damaged(tmp_path, statement)
    with pytest.raises(BadInput, match=line):
        check_study(open_study(tmp_path, 0), GROUPS)


@pytest.mark.parametrize("process", [{}, {"pid": None}, {"pid": "x"}, {"pid": 2**30, "started": None}])
def test_a_process_that_cannot_be_is_dead(process):
    assert is_dead({"host": socket.gethostname(), **process})
    assert not is_dead(owner())


@pytest.mark.parametrize("heartbeat", ["NULL", "'2999-01-01 00:00:00.000000'"])
def test_a_process_of_another_machine_is_dead_when_its_heartbeat_stops(tmp_path, monkeypatch, heartbeat):
    """The clock of this process decides: that of the other machine may be wrong."""
    monkeypatch.delenv("PRUNECAST_TEST_DATABASE", raising=False)
    run_toy(tmp_path, 3, seed=3)
    elsewhere = json.dumps({"host": "elsewhere", "pid": 1, "started": "1"})
    damaged(
        tmp_path,
        "UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE number = 2",
        f"UPDATE trial_user_attributes SET value_json = '{elsewhere}' WHERE key = 'process'",
        "DELETE FROM trial_heartbeats",
        f"INSERT INTO trial_heartbeats (trial_id, heartbeat) SELECT 3, {heartbeat} WHERE {heartbeat} NOTNULL",
    )
    now = iter(range(0, 10_000, 40))
    monkeypatch.setattr(run_trials_module.time, "monotonic", lambda: float(next(now)))
    monkeypatch.setattr(run_trials_module, "POLL_S", 0.0)
    study = open_study(tmp_path, 3)
    heartbeats = run_trials_module._Heartbeats()
    assert [heartbeats.stopped(study, 2) for _ in range(3)] == [False, False, True]
    run_toy(tmp_path, 3, seed=3)
    assert len(story(tmp_path)) == 3


def test_numbers_do_not_count_what_was_killed(tmp_path, uninterrupted):
    assert start(tmp_path, TRIALS, 3, 26).wait(600) == -signal.SIGKILL
    run_toy(tmp_path, TRIALS, seed=3)
    study = open_study(tmp_path, 0)
    finished = finished_trials(study)
    numbers = trial_numbers(study)
    assert len(study.get_trials()) > TRIALS == len(uninterrupted)
    assert [numbers[trial.number] for trial in finished] == list(range(TRIALS))


@pytest.mark.parametrize("begun", [False, True])
def test_a_study_without_trials_gets_the_plain_one(tmp_path, begun):
    """A process may be killed after it creates the study and before it adds the first trial."""
    computed = []

    def opened(plain):
        kept_in = StudyStorage(str(tmp_path / "s.sqlite"))
        return search_model_module._open(kept_in, "n", 0, SimpleNamespace(plain=plain), GROUPS)

    def plain():
        computed.append(toy_result({"tall": "plain"}))
        return computed[-1]

    if begun:
        storage = StudyStorage(str(tmp_path / "s.sqlite")).open()
        import_module("optuna").create_study(storage=storage, study_name="n", direction="maximize")
    (trial,) = opened(plain).trials
    assert [trial.value] == [result.retained_importance for result in computed]
    assert len(opened(pytest.fail).trials) == 1
