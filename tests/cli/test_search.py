"""`prunecast search`: what it finds, that it goes on, and what it refuses."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("optuna")

from prunecast.patterns import parse_pattern, weigh
from prunecast.patterns.sources import read_weights
from prunecast.text import percent

WEIGHTS = Path(__file__).parents[2] / "examples" / "stdlib_lm" / "weights.safetensors"
SETTINGS = ("--target", "re:0.ffn", "--tokens", "32768", "--engine", "model", "--latency", "60%")

KILL_IN_TRIAL = """
import os, signal, sys
from prunecast.codesign.study.evaluator import Evaluator
from prunecast.cli import main
calls = 0
def result(self, patterns, plain, real=Evaluator.result):
    global calls
    calls += 1
    if calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, patterns, plain)
Evaluator.result = result
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def lm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(WEIGHTS, tmp_path / "w.safetensors")
    return "w.safetensors"


def test_a_kill_in_the_middle_of_a_trial_loses_and_changes_nothing(run, lm, tmp_path):
    arguments = ("search", lm, *SETTINGS, "--trials", "3", "--json")
    killed = subprocess.run(
        [sys.executable, "-c", KILL_IN_TRIAL, *arguments], cwd=tmp_path, capture_output=True, timeout=1800
    )
    assert killed.returncode == -signal.SIGKILL
    code, out, _ = run(*arguments, "-o", "out")
    assert code == 0
    resumed = json.loads(out)
    whole = json.loads(run(*arguments, "--storage", "whole.sqlite")[1])
    keys = ("trial", "same_as", "patterns", "seconds", "retained_importance", "sparsity")
    told = [[[t[key] for key in keys] for t in d["study"]["trials"]] for d in (resumed, whole)]
    assert told[0] == told[1]
    assert resumed["study"]["best_trial"] == whole["study"]["best_trial"]
    check_written(tmp_path / "out", resumed)


def check_written(folder, found):
    """The best trial keeps at least what the plain allocation does, in the time, and lies in the file."""
    assert json.loads((folder / "recipe.json").read_text()) == found
    assert found["retained_importance"] >= found["study"]["plain"]["retained_importance"]
    assert found["seconds"] <= 0.6 * found["dense_seconds"]
    written = read_weights(str(folder / "weights.safetensors"), ["re:0.ffn"], []).layers
    before = read_weights(str(WEIGHTS), ["re:0.ffn"], []).layers
    for layer in found["layers"]:
        kept = written[layer["layer"]].weights != 0
        whole = weigh("layer", before[layer["layer"]].weights)
        share = whole.sum(where=kept, dtype="float64") / whole.sum(dtype="float64")
        assert share == pytest.approx(layer["retained_importance"], rel=1e-6)
        parse_pattern(layer["pattern"])


def test_a_second_run_computes_nothing_and_says_the_same(run, lm, monkeypatch):
    first = run("search", lm, *SETTINGS, "--trials", "2", "--csv")[:2]
    monkeypatch.setattr("prunecast.codesign.study.evaluator.prune_to_targets", None)
    assert run("search", lm, *SETTINGS, "--trials", "2", "--csv")[:2] == first
    shown = run("search", lm, *SETTINGS, "--trials", "2")[1]
    assert "0 computed now" in shown
    study = json.loads(run("search", lm, *SETTINGS, "--trials", "2", "--json")[1])["study"]
    words = shown.split()
    for trial in study["trials"]:
        assert percent(trial["sparsity"]) in words
    for point in (*study["trials"], *study["pareto"]):
        assert f"{100 * point['retained_importance']:.2f}" in words


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--latency", "1%"), "the floor is"),
        (("--latency", "soon"), "60%, 850us or 1.2ms"),
        (("--trials", "0"), "trials must be at least 1"),
        (("--seed", "-1"), "seed"),
        (("--storage", "no/study.sqlite"), "folder that exists"),
        (("--storage", "w.safetensors"), "--storage would overwrite w.safetensors, which is read"),
        (("--storage", "text"), "not a database"),
        (("--cap", "nobody=0.5"), "nobody"),
        (("-o", "no/out"), "folder that exists"),
        (("--json", "--csv"), "exclude each other"),
    ],
)
def test_bad_input_writes_nothing(run, lm, tmp_path, options, told):
    (tmp_path / "text").write_text("no database, but longer than the header of one " * 100)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    code, out, err = run("search", lm, *SETTINGS, *options)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert told in err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_read_only_folder(run, lm, tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root writes anywhere")
    (tmp_path / "locked").mkdir(mode=0o500)
    code, _, err = run("search", lm, *SETTINGS, "--storage", "locked/study.sqlite")
    assert (code, err.count("\n")) == (2, 1)
