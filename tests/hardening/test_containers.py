"""Containers: no place for compiled code, no home, little of the system there."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import prunecast


@pytest.fixture
def read_only_package(tmp_path):
    """A copy of the package in which `__pycache__` can be no folder, for root neither; its folder."""
    shutil.copytree(
        Path(prunecast.__file__).parent,
        tmp_path / "package" / "prunecast",
        ignore=shutil.ignore_patterns("__pycache__", "recorded"),
    )
    for folder in [tmp_path / "package" / "prunecast", *(tmp_path / "package" / "prunecast").rglob("*")]:
        if folder.is_dir():
            (folder / "__pycache__").touch()
    return tmp_path / "package"


def run(package, folder, *arguments, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "XDG"))}
    return subprocess.run(
        [sys.executable, "-B", "-m", "prunecast", *arguments],
        cwd=folder,
        env=kept | {"PYTHONPATH": str(package)} | environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )


@pytest.mark.slow
def test_without_a_place_for_compiled_code_it_warns_once_and_works(tmp_path, read_only_package):
    np.save(tmp_path / "w.npy", np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16))
    arguments = ("predict", "w.npy", "-n", "64", "--no-crossovers", "--engine", "model", "--kernel", "stspmm")
    # no home that could be one: /dev/null is no folder
    done = run(read_only_package, tmp_path, *arguments, HOME="/dev/null", XDG_CACHE_HOME="/dev/null/cache")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("prunecast: warning: compiled code is not kept")
    assert "stspmm" in done.stdout


PLANNED = """
from prunecast.hardware import load_gpu
from prunecast.kernels import plan_stspmm
from prunecast.kernels.tile.configs import tile_configs
from prunecast.patterns.tiling import dense_tile_map
gpu = load_gpu("h200-sxm")
config = tile_configs(gpu, "fp16", 128)[0]
print(plan_stspmm(dense_tile_map(256, 512, 128), 64, "fp16", gpu, config=config).fingerprint())
"""
"""Compiles two functions, as the commands compile thirty."""


def test_two_processes_compile_at_once(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", PLANNED],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    told = [process.communicate(timeout=1800) for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert told[0] == told[1]
    assert told[0][0].strip()
    assert list((tmp_path / "cache").rglob("*.nbc"))
