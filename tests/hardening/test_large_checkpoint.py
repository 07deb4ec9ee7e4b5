"""Checkpoints that are too large to hold are read one matrix at a time, with the same outcome."""

import subprocess
import sys
from importlib import import_module

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import predict, prepare_job
from prunecast.errors import BadInput
from prunecast.patterns.sources import read, read_weights

FAST = {"gpu": "h200-sxm", "tokens": 256, "engine": "model", "crossovers": False}
LAYER_MB = 4

# VmHWM, not ru_maxrss: Linux carries the latter over from the process that started this one.
MEASURED = """
import sys
from importlib import import_module
from prunecast.codesign import prepare_job
from prunecast.patterns.sources import read
from prunecast.cli import main
prepare_job.MOST_PLANNED = read.MOST_HELD = import_module("prunecast.codesign.predict").MOST_AHEAD = 1
code = main(sys.argv[1:])
print(open("/proc/self/status").read().split("VmHWM:")[1].split()[0], file=sys.stderr)
sys.exit(code)
"""


@pytest.fixture
def one_at_a_time(monkeypatch):
    monkeypatch.setattr(read, "MOST_HELD", 1)
    monkeypatch.setattr(prepare_job, "MOST_PLANNED", 1)
    monkeypatch.setattr(import_module("prunecast.codesign.predict"), "MOST_AHEAD", 1)


def checkpoint(folder, layers, shape=(1024, LAYER_MB * 512)):
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(layers):
        weights = rng.standard_normal(shape, np.float32).astype(np.float16)
        save_file({f"layers.{i}.weight": weights}, folder / f"model-{i}.safetensors")
    return folder


def test_predictions_are_those_of_a_checkpoint_that_is_held(tmp_path, request):
    folder = checkpoint(tmp_path / "m", 4, (128, 256))
    held = predict(folder, **FAST)
    request.getfixturevalue("one_at_a_time")
    read_again = predict(folder, **FAST)
    assert [row.row() for row in read_again] == [row.row() for row in held]
    assert read_again.provenance == held.provenance
    assert [row.plan.fingerprint() for row in read_again] == [row.plan.fingerprint() for row in held]


def test_a_matrix_is_read_once_for_all_that_is_asked_of_it_in_turn(tmp_path, one_at_a_time, monkeypatch):
    folder = checkpoint(tmp_path / "m", 3, (64, 64))
    reads = []
    matrix = read._matrix
    monkeypatch.setattr(read, "_matrix", lambda *asked: reads.append(asked[1]) or matrix(*asked))
    layers = read_weights(folder).layers
    assert not reads
    for layer in layers.values():
        assert layer.shape == (64, 64)
        assert layer.weights is layer.weights
        assert layer.kept.all()
    assert reads == list(layers)


def test_what_is_read_late_is_checked_all_the_same(tmp_path, one_at_a_time):
    folder = checkpoint(tmp_path / "m", 2, (64, 64))
    save_file({"layers.2.weight": np.full((64, 64), np.nan, np.float16)}, folder / "model-2.safetensors")
    with pytest.raises(BadInput, match=r"'layers\.2\.weight' holds 4096 NaN"):
        predict(folder, **FAST)


def peak_mb(folder):
    command = [
        sys.executable,
        "-c",
        MEASURED,
        "predict",
        str(folder),
        "--engine",
        "model",
        "-n",
        "64",
        "--quiet",
    ]
    ended = subprocess.run([*command, "--no-crossovers"], capture_output=True, text=True, timeout=1800)
    assert ended.returncode == 0, ended.stderr
    return int(ended.stderr.split()[-1]) / 1024


def test_more_layers_take_no_more_memory(tmp_path):
    peak_mb(checkpoint(tmp_path / "warm", 1))  # may compile
    few, many = peak_mb(checkpoint(tmp_path / "few", 4)), peak_mb(checkpoint(tmp_path / "many", 20))
    assert many - few < 3 * LAYER_MB  # 16 layers more, of which plans alone take as much as their weights
