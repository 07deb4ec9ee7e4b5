"""The harness of the accuracy studies: its parts, and all of its steps on a tiny model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "accuracy"
MODULES = (
    "contestants",
    "language",
    "measured",
    "predicted",
    "report",
    "rows",
    "run",
    "study",
    "text",
    "tuning",
)
SOME = "tile-wise:128,atp:128,prune --latency,2:4,unstructured"


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the scripts as they see it themselves."""
    monkeypatch.syspath_prepend(SCRIPTS)
    yield
    for name in MODULES:
        sys.modules.pop(name, None)


def step(name, out, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [
        sys.executable,
        SCRIPTS / "run.py",
        name,
        "--tiny",
        "--out",
        out,
        "--device",
        "cpu",
        *arguments,
    ]
    done = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_step_goes_on_where_it_ended(scripts, tmp_path):
    from rows import Rows, work_through

    rows, did = Rows(tmp_path / "rows.jsonl"), []

    def work(key):
        did.append(key["n"])
        if key["n"] == 2 and did.count(2) == 1:
            raise ValueError("not yet")
        return {"found": 10 * key["n"]}

    todo = [{"n": number} for number in range(4)]
    work_through(rows, todo[:2], work, 60)
    work_through(rows, todo, work, 60)
    work_through(rows, todo, work, 60)
    assert did == [0, 1, 2, 3, 2]
    assert sorted(row["found"] for row in rows.read()) == [0, 10, 20, 30]
    work_through(rows, [{"n": 9}], work, -1.0)
    assert rows.last(n=9) is None


def test_parts_are_everything_once(scripts):
    from rows import part_of

    todo = list(range(11))
    assert sorted(each for number in range(1, 5) for each in part_of(todo, f"{number}/4")) == todo


@pytest.mark.slow
def test_all_steps_on_a_tiny_model(tmp_path):
    step("train", tmp_path)
    for _ in range(2):  # whoever takes its sparsity from another comes second
        step("masks", tmp_path, "--only", SOME)
    said = step("tune", tmp_path, "--only", SOME)
    assert "failed" not in said
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    tuned = [(row["contestant"], row["seed"]) for row in rows if row["step"] == "tune"]
    assert sorted(tuned) == sorted((name, seed) for name in [*SOME.split(","), "dense"] for seed in (0, 1))
    found = {row["contestant"]: row for row in rows if row["step"] == "masks" and row["seed"] == 0}
    for name in ("tile-wise:128", "atp:128"):
        assert found[name]["predicted_share"] == pytest.approx(found[name]["share"], rel=0.03)
    assert found["prune --latency"]["predicted_share"] <= found["prune --latency"]["share"]
    assert found["unstructured"]["sparsity"] == pytest.approx(found["atp:128"]["sparsity"], abs=0.01)
    assert np.load(tmp_path / "scores" / "dense-1.0-0.npy").shape == (8,)
    assert step("tune", tmp_path, "--only", SOME) == ""
