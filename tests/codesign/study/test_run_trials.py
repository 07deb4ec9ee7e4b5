"""Studies go on after a kill at any point, as if nothing had been."""

import collections
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from prunecast.codesign.study.run_trials import OWNER, finished_trials, run_trials
from tests.codesign.study.toy_study import GROUPS, evaluated, open_study, run_toy, story, toy_result

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
    assert start(tmp_path, TRIALS, 3, commit).wait(60) == -signal.SIGKILL
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
    assert [process.wait(120) for process in running] == [0, 0, 0]
    assert len(story(tmp_path)) == 16
    assert len(evaluated(tmp_path)) <= 16


def test_a_process_of_another_machine_is_left_alone(tmp_path):
    study = open_study(tmp_path, 0)
    with pytest.warns(UserWarning, match="Heartbeat"):
        trial = study.ask()
    trial.set_user_attr(OWNER, {"host": "elsewhere", "pid": 1, "started": "1"})
    run_toy(tmp_path, 0, seed=0)
    assert [t.state.name for t in study.get_trials()] == ["RUNNING"]
