"""The same input gives the same bytes: every command twice, with one thread and with two."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign.sweep import SweepStore

FAST = ["w.safetensors", "-n", "64"]
THREADS = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")

COMMANDS = {
    "predict": ["predict", *FAST, "--json", "-o", "p.csv"],
    "prune": ["prune", "w.safetensors", "-o", "out", "--json"],
    "prune to a time": ["prune", *FAST, "-o", "out", "--engine", "model", "--latency", "110%", "--json"],
    "compare": ["compare", *FAST, "--gpu", "h200-sxm", "--gpu", "a100-sxm4-80gb", "--engine", "model"],
    "explain": ["explain", *FAST, "--target", "a"],
    "sweep": [*["sweep", "-o", "s.sqlite", "--workers", "2", "--shape", "256x256x64"], "--sparsity", "0.5"],
    "gpus": ["gpus", "--json"],
    "patterns": ["patterns"],
    "validate": [
        "validate",
        "--replay",
        "short.csv",
        "--json",
        "--report",
        "r.md",
        "--intervals",
        "i.toml",
    ],
}


def content(path):
    """The bytes; of a sweep's file the rows, which lie in it in the order in which workers finished."""
    if path.suffix != ".sqlite":
        return path.read_bytes()
    with SweepStore(path) as store:
        return store.rows()


def outcome(folder, arguments, threads):
    """What the command prints, and every file that it leaves, by name."""
    rng = np.random.default_rng(0)
    save_file({"a": rng.standard_normal((256, 256)).astype(np.float16)}, folder / "w.safetensors")
    ended = subprocess.run(
        [sys.executable, "-m", "prunecast", *arguments],
        cwd=folder,
        capture_output=True,
        timeout=1800,
        env=os.environ | dict.fromkeys(THREADS, threads),
    )
    assert ended.returncode == 0, ended.stderr
    files = {str(path.relative_to(folder)): content(path) for path in folder.rglob("*") if path.is_file()}
    return ended.stdout, files


@pytest.mark.parametrize("name", COMMANDS)
def test_twice(tmp_path, record, name):
    lines = (tmp_path / record).read_bytes()
    found = []
    for threads in "12":
        folder = tmp_path / threads / "same"
        folder.mkdir(parents=True)
        (folder / record).write_bytes(lines)
        found.append(outcome(folder, COMMANDS[name], threads))
    assert found[0][0]
    assert found[0] == found[1]
