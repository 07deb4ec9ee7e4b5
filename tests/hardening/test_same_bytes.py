"""The same input gives the same bytes: every command in two processes, with one thread and with two."""

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign.sweep import SweepStore
from prunecast.validation.records import read_runs
from prunecast.validation.validate import bundled_records
from tests.naive.record_files import write_run

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


ALL = """
import contextlib, os, sys
from prunecast.cli import main
from tests.hardening.test_same_bytes import COMMANDS
for name, arguments in COMMANDS.items():
    with contextlib.chdir(name), open("printed", "w") as out, contextlib.redirect_stdout(out):
        assert main(arguments) == 0, name
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What every command prints and every file that it leaves, in processes of one thread and of two."""
    run = read_runs(bundled_records()[0])[0]
    return [outcome(tmp_path_factory.mktemp(f"of-{threads}"), run, threads) for threads in "12"]


def outcome(place, run, threads):
    weights = np.random.default_rng(0).standard_normal((256, 256)).astype(np.float16)
    for name in COMMANDS:
        (place / name).mkdir()
        save_file({"a": weights}, place / name / "w.safetensors")
        write_run(place / name / "short.csv", run.header, run.rows[:3])
    environment = os.environ | dict.fromkeys(THREADS, threads) | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", ALL], cwd=place, capture_output=True, timeout=1800, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    return {
        name: {
            str(path.relative_to(place / name)): content(path)
            for path in (place / name).rglob("*")
            if path.is_file()
        }
        for name in COMMANDS
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_twice(outcomes, name):
    one, two = (found[name] for found in outcomes)
    assert one["printed"]
    assert one == two
