"""Patterns, kernels and GPUs of other installed packages: found by entry points, or refused with one line."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BANDS = """
from prunecast.patterns import PATTERNS

class Bands(PATTERNS["tile-wise"]):
    family = "bands"
    example = "bands:64"
"""
MINE = """
from dataclasses import replace
from prunecast.kernels import KERNELS

mine = replace(KERNELS["tile-wise"], name="mine", meaning="a second name of tile-wise")
"""
GPU = (
    'schema = 1\nname = "small-h200"\ntitle = "Half an H200"\ncompute_capability = "9.0"\nlike = "h200-sxm"\n'
)
OWN = {
    "sm_count": (66, "count"),
    "max_clock_hz": (1.98e9, "Hz"),
    "power_limit_w": (700, "W"),
    "l2_bytes": (62914560, "byte"),
    "dram_bytes": (141e9, "byte"),
    "dram_peak_bytes_per_s": (4.8e12, "byte/s"),
}
ENTRIES = """
[prunecast.patterns]
bands = my_plugin.patterns:Bands
[prunecast.kernels]
mine = my_plugin.kernels:mine
[prunecast.gpus]
mine = my_plugin.gpus
"""


def install(folder: Path, entries: str) -> None:
    """Lay out a package as an installer leaves it."""
    (folder / "my_plugin" / "gpus").mkdir(parents=True)
    (folder / "my_plugin" / "__init__.py").touch()
    (folder / "my_plugin" / "patterns.py").write_text(BANDS)
    (folder / "my_plugin" / "kernels.py").write_text(MINE)
    (folder / "my_plugin" / "gpus" / "__init__.py").touch()
    tables = (
        f'[{name}]\nvalue = {value}\nunit = "{unit}"\nkind = "guess"\nsource = "a test"\n'
        for name, (value, unit) in OWN.items()
    )
    (folder / "my_plugin" / "gpus" / "small-h200.toml").write_text(GPU + "".join(tables))
    metadata = folder / "my_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(entries)


def prunecast(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT / 'src'}"}
    command = [sys.executable, "-m", "prunecast", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, cwd=folder)


def test_a_package_adds_a_pattern_a_kernel_and_a_gpu(tmp_path: Path) -> None:
    install(tmp_path, ENTRIES)
    assert "bands:64" in prunecast(tmp_path, "patterns").stdout
    assert "Half an H200" in prunecast(tmp_path, "gpus", "small-h200").stdout
    weights = tmp_path / "weights.npy"
    code = f"import numpy; numpy.save({str(weights)!r}, numpy.eye(256, dtype='float32') + 1)"
    subprocess.run([sys.executable, "-c", code], check=True)
    words = ("--pattern", "bands:64", "--kernel", "mine", "--gpu", "small-h200", "--engine", "model")
    found = prunecast(tmp_path, "predict", str(weights), *words, "--no-crossovers", "--csv")
    assert found.returncode == 0, found.stderr
    assert re.search(r",bands:64,0\.75,mine,", found.stdout)


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        (
            "[prunecast.patterns]\nx = my_plugin.patterns:Nothing\n",
            "entry point x = my_plugin.patterns:Nothing of my-plugin",
        ),
        ("[prunecast.patterns]\nx = math:pi\n", "must be a type"),
        ("[prunecast.kernels]\nx = my_plugin.patterns:Bands\n", "must be a Kernel"),
        ("[prunecast.gpus]\nx = my_plugin.nowhere\n", "cannot be loaded: No module named"),
    ],
)
def test_a_broken_entry_point_is_one_line(tmp_path: Path, entries: str, says: str) -> None:
    install(tmp_path, entries)
    refused = prunecast(tmp_path, "predict", "none.npy", "--gpu", "h100-sxm", "--pattern", "2:4")
    assert refused.returncode == 2
    assert says in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
