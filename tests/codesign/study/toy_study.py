"""A study whose trials cost nothing; as a program, one that kills itself at a commit of its database.

`python -m tests.codesign.study.toy_study FOLDER TRIALS SEED COMMIT`

It lies in an SQLite file, or on a server where there is one; pools of its driver outlive the tests:
`PRUNECAST_TEST_DATABASE=postgresql+psycopg://user@host/studies pytest -p no:unraisableexception
tests/codesign/study/test_run_trials.py`
"""

import hashlib
import json
import os
import signal
import sys
import uuid
from pathlib import Path

import optuna

from prunecast.codesign.search import FrontPoint, TargetResult
from prunecast.codesign.study.run_trials import finished_trials, patterns_of, run_trials
from prunecast.codesign.study.storage import StudyStorage, seeded_sampler
from prunecast.errors import BadInput

GROUPS = ("tall", "wide")


def toy_result(patterns):
    """A result whose worth depends on the patterns alone; one in eight misses its target."""
    number = int.from_bytes(hashlib.sha256(json.dumps(patterns).encode()).digest()[:4], "big")
    if number % 8 == 0:
        raise BadInput("no round meets the target")
    worth = number / 2**32
    return TargetResult(
        layers=(),
        time=None,
        seconds=1e-4,
        dense_seconds=2e-4,
        retained_importance=worth,
        sparsity=0.5,
        front=(FrontPoint(1e-4, worth, 0.5),),
    )


def open_study(folder: Path, seed: int):
    storage = StudyStorage(os.environ.get("PRUNECAST_TEST_DATABASE") or str(folder / "study.sqlite")).open()
    name = folder / "name"
    if not name.exists():
        name.write_text(f"toy {uuid.uuid4()}")
    return optuna.create_study(
        storage=storage,
        study_name=name.read_text(),
        direction="maximize",
        sampler=seeded_sampler(seed),
        load_if_exists=True,
    )


def run_toy(folder: Path, trials: int, seed: int) -> int:
    """Bring the study to its trials; every evaluation is noted in a file."""

    def evaluate(patterns):
        with open(folder / "evaluated", "a", encoding="utf-8") as notes:
            notes.write(json.dumps(patterns) + "\n")
        return toy_result(patterns)

    return run_trials(open_study(folder, seed), GROUPS, evaluate, trials, lambda done: None)


def evaluated(folder: Path) -> list[str]:
    return (folder / "evaluated").read_text(encoding="utf-8").splitlines()


def story(folder: Path):
    """What the finished trials tried and found, in order."""
    return [(patterns_of(t, GROUPS), t.value) for t in finished_trials(open_study(folder, 0))]


def kill_at_commit(number: int) -> None:
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    left = [number]

    def count(_connection) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "commit", count)


if __name__ == "__main__":
    where, wanted, drawn, commit = Path(sys.argv[1]), *map(int, sys.argv[2:])
    open_study(where, drawn)
    kill_at_commit(commit)
    run_toy(where, wanted, drawn)
