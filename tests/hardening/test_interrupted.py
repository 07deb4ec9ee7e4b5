"""Processes that are killed, and disks that are full: outputs are whole or absent, and a rerun completes."""

import contextlib
import io
import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from prunecast.cli import main

PRUNECAST = [sys.executable, "-m", "prunecast"]
PRUNE = ["prune", "w.safetensors", "-o", "out"]
SWEEP = ["sweep", "-o", "s.sqlite", "--workers", "1", "--shape", "256x256x64", "--pattern", "tile-wise:32"]
SWEEP += [word for share in range(50, 90, 2) for word in ("--sparsity", f"0.{share}")]

KILLED_AT = """
import os, signal, sys
event, wanted = sys.argv[1], int(sys.argv[2])
seen = 0
def kill(name, arguments):
    global seen
    if name == event and ("/.out." in f"/{arguments[0]}" or "/.v.json." in f"/{arguments[0]}"):
        seen += 1
        if seen == wanted:
            os.kill(os.getpid(), signal.SIGKILL)
from prunecast.cli import main
sys.addaudithook(kill)
sys.exit(main(sys.argv[3:]))
"""
"""Kills itself where Python tells its audit hooks that one of our files or folders aside gets its name."""


def run(folder, *arguments):
    """What a command prints that must succeed; in this process, for nobody kills it."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(list(arguments))
    assert code == 0, err.getvalue()
    return out.getvalue()


def refused(folder, bytes_left, *arguments):
    """What a command says in its last line that can write files of so many bytes."""
    ended = subprocess.run(
        [*PRUNECAST, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=1800,
        preexec_fn=full(bytes_left),
    )
    assert ended.returncode == 2, ended.stderr
    return ended.stderr.splitlines()


def killed_at(folder, event, number, *arguments):
    return subprocess.run(
        [sys.executable, "-c", KILLED_AT, event, str(number), *arguments],
        cwd=folder,
        capture_output=True,
        timeout=1800,
    ).returncode


@pytest.fixture
def weights(tmp_path):
    rng = np.random.default_rng(0)
    save_file({"a": rng.standard_normal((256, 256)).astype(np.float16)}, tmp_path / "w.safetensors")
    return tmp_path


def check_out(folder):
    """What lies in `out` belongs together: a recipe has its weights."""
    recipe = folder / "out" / "recipe.json"
    if not recipe.exists():
        return None
    found = json.loads(recipe.read_text())
    pruned = load_file(folder / "out" / "weights.safetensors")["a"]
    assert np.mean(pruned == 0) == pytest.approx(found["layers"][0]["sparsity"], abs=1e-3)
    return found


@pytest.mark.parametrize(("old", "number"), [(False, 2), (True, 2), (True, 3)])
def test_prune_killed_at_a_rename(weights, old, number):
    if old:
        run(weights, *PRUNE, "--sparsity", "0.5")
    code = killed_at(weights, "os.rename", number, *PRUNE, "--sparsity", "0.75")
    assert code == -signal.SIGKILL
    if not old:
        assert not (weights / "out").exists() or check_out(weights) is not None
    check_out(weights)
    run(weights, *PRUNE, "--sparsity", "0.75")
    assert check_out(weights)["sparsity"] == 0.75


def test_prune_killed_before_its_folder_has_files(weights):
    assert killed_at(weights, "os.rename", 1, *PRUNE) == -signal.SIGKILL
    assert not (weights / "out").exists()
    run(weights, *PRUNE)


@pytest.mark.slow
def test_sweep_killed_goes_on(tmp_path):
    started = subprocess.Popen(
        [*PRUNECAST, *SWEEP], cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 1800
    while started.poll() is None and time.monotonic() < deadline and not stored(tmp_path):
        time.sleep(0.02)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    kept = stored(tmp_path)
    assert f"{kept} known" in run(tmp_path, *SWEEP)
    assert " 0 computed" in run(tmp_path, *SWEEP)


def stored(folder):
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 's.sqlite'}?mode=ro", uri=True)) as store:
            return store.execute("SELECT count(*) FROM results").fetchone()[0]
    except sqlite3.Error:
        return 0


def test_a_sweep_file_killed_while_it_is_made(tmp_path):
    """The table and its schema number come together or not at all."""
    made = """
import os, signal, sqlite3, sys
from prunecast.codesign.sweep.cases import SweepStore
class Killed(sqlite3.Connection):
    def execute(self, text, *more):
        if text.startswith("PRAGMA user_version ="):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(text, *more)
connect = sqlite3.connect
sqlite3.connect = lambda path: connect(path, factory=Killed)
SweepStore(sys.argv[1])
"""
    path = tmp_path / "s.sqlite"
    assert subprocess.run([sys.executable, "-c", made, path], timeout=1800).returncode == -signal.SIGKILL
    run(tmp_path, *SWEEP[:11], "--sparsity", "0.5")


def test_replay_killed_at_its_first_write(tmp_path, record):
    arguments = ["validate", "--replay", record, "--engine", "model", "-o", "v.json"]
    assert killed_at(tmp_path, "os.rename", 1, *arguments) == -signal.SIGKILL
    assert not (tmp_path / "v.json").exists()
    run(tmp_path, *arguments)
    assert json.loads((tmp_path / "v.json").read_text())["rows"]


def full(bytes_left):
    """Files may grow to so many bytes; a write beyond fails as on a full disk."""

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, bytes_left))

    return limit


def test_prune_on_a_full_disk_leaves_the_old_files(weights):
    run(weights, *PRUNE, "--sparsity", "0.5")
    before = {path.name: path.read_bytes() for path in (weights / "out").iterdir()}
    (line,) = refused(weights, 1000, *PRUNE, "--sparsity", "0.75")
    assert "/out" in line.partition("cannot write")[2]
    assert {path.name: path.read_bytes() for path in (weights / "out").iterdir()} == before
    assert sorted(path.name for path in weights.iterdir()) == ["out", "w.safetensors"]


def test_a_full_disk_leaves_the_old_report(weights):
    predict = ["predict", "w.safetensors", "-n", "64", "--engine", "model", "--no-crossovers", "-o", "p.json"]
    run(weights, *predict)
    before = (weights / "p.json").read_bytes()
    (line,) = refused(weights, 500, *predict)
    assert "cannot write p.json: File too large" in line
    assert (weights / "p.json").read_bytes() == before


def test_a_sweep_on_a_full_disk_keeps_what_it_has(tmp_path):
    run(tmp_path, *SWEEP[:11], "--sparsity", "0.5")
    before = stored(tmp_path)
    lines = refused(tmp_path, (tmp_path / "s.sqlite").stat().st_size, *SWEEP)
    assert lines[-1].startswith("prunecast: error:")
    assert stored(tmp_path) == before
