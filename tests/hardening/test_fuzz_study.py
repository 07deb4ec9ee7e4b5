"""Damaged studies: refused in one line, or read."""

import random
import shutil
import sqlite3

import pytest

pytest.importorskip("optuna")

from prunecast.codesign.study.run_trials import (
    RESULT,
    check_study,
    finished_trials,
    is_dead,
    owner,
    patterns_of,
)
from prunecast.codesign.study.storage import StudyStorage, optuna_library, read_result

COLUMNS = {
    "trials": ("number", "state", "datetime_start"),
    "trial_params": ("param_name", "param_value", "distribution_json"),
    "trial_user_attributes": ("key", "value_json"),
    "trial_system_attributes": ("key", "value_json"),
    "trial_values": ("objective", "value", "value_type"),
    "studies": ("study_name",),
    "study_directions": ("direction", "objective"),
}
VALUES = (None, "", "[]", "{}", "null", "NaN", '"a"', "-1", 10**18, -1, 1.5, b"\xff", "inf", '{"name": 1}')


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A file with a study of two finished trials."""
    path = tmp_path_factory.mktemp("study") / "s.sqlite"
    result = dict.fromkeys(("seconds", "dense_seconds", "retained_importance", "sparsity"), 1.0)
    optuna = optuna_library()
    made = optuna.create_study(storage=StudyStorage(str(path)).open(), study_name="s", direction="maximize")
    for choice in "ab":
        distribution = optuna.distributions.CategoricalDistribution(["a", "b"])
        made.add_trial(
            optuna.trial.create_trial(
                params={"g": choice},
                distributions={"g": distribution},
                value=1.0,
                user_attrs={RESULT: {**result, "layers": [], "front": []}, "process": owner()},
                system_attrs={"fixed_params": {"g": choice}},
            )
        )
    return path


def read(path):
    """What `search` reads of a study."""
    kept_in = StudyStorage(str(path))
    with kept_in.errors():
        study = optuna_library().load_study(storage=kept_in.open(), study_name="s")
        check_study(study, ())  # its settings are those of no search
        for trial in finished_trials(study):
            patterns_of(trial, ("g",))
            is_dead(trial.user_attrs.get("process"))
            if RESULT in trial.user_attrs:
                read_result(trial.user_attrs[RESULT], "a trial")


@pytest.mark.filterwarnings("ignore")
def test_any_value_anywhere(study, tmp_path, usable_or_refused):
    for table, columns in COLUMNS.items():
        for column in columns:
            for value in VALUES:
                shutil.copy(study, tmp_path / "s.sqlite")
                connection = sqlite3.connect(tmp_path / "s.sqlite")
                try:
                    connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
                    connection.commit()
                except sqlite3.Error:
                    continue
                finally:
                    connection.close()
                usable_or_refused(read, tmp_path / "s.sqlite")


@pytest.mark.filterwarnings("ignore")
def test_any_bytes_anywhere(study, tmp_path, usable_or_refused):
    content = study.read_bytes()
    draw = random.Random(0)
    for _ in range(60):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 40)):
            damaged[draw.randrange(100, len(damaged))] = draw.randrange(256)
        (tmp_path / "s.sqlite").write_bytes(damaged)
        usable_or_refused(read, tmp_path / "s.sqlite")
