"""A disk that is full: one line that names what the user asked for, and nothing is left."""

import resource
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign.sweep.cases import SweepStore
from prunecast.codesign.sweep.pictures import write_pictures
from prunecast.errors import BadInput
from prunecast.files import folder_aside
from prunecast.patterns.sources.readers import RECIPE
from prunecast.validation.records import Measurement, RunWriter
from prunecast.validation.report import write_report
from prunecast.validation.validate import replay
from tests.codesign.sweep.test_pictures import ROWS
from tests.validation.tiny_run import CASE, HEADER

MOST_BYTES = 1000
"""No file here can grow beyond this: the system refuses the write as on a disk without space."""


@contextmanager
def full_disk():
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("is_there", [False, True])
def test_prune(run, is_there):
    save_file({"w": np.ones((64, 64), np.float16)}, "w.safetensors")
    if is_there:
        Path("o").mkdir()
        Path("o", RECIPE).write_text("{}")
    before = sorted(Path().rglob("*"))
    with full_disk():
        code, out, err = run("prune", "w.safetensors", "-o", "o", "--pattern", "2:4")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "cannot write" in err
    assert "/o/weights.safetensors: File too large" in err
    assert ".prunecast-" not in err
    assert sorted(Path().rglob("*")) == before


def test_sweep():
    with full_disk(), pytest.raises(BadInput, match=r"^cannot write results.sqlite: "):
        SweepStore("results.sqlite")
    assert list(Path().iterdir()) == []


def test_pictures():
    with full_disk(), pytest.raises(BadInput, match=r"cannot write .*/heat/.*svg: File too large"):
        write_pictures(ROWS, Path("heat"))
    assert list(Path().iterdir()) == []


def test_the_report_of_a_validation():
    writer = RunWriter(Path("run.csv"), HEADER)
    writer.add(Measurement(case=CASE, kernel="stspmm", seconds=3e-6, spread=0.01, clock_mhz=1800.0))
    writer.close()
    validation = replay(["run.csv"], engines=("model",))
    with full_disk(), pytest.raises(BadInput, match=r"cannot write .*/r/.*png: File too large"):
        write_report(validation, Path("r.md"))
    assert [path.name for path in Path().iterdir()] == ["run.csv"]


def test_several_folders_or_none():
    """As `prune --solutions` writes them: the disk is full at the second, and the first is not left."""

    def write_both():
        with folder_aside("a") as first, folder_aside("b") as second:
            (first / "file").write_text("short")
            (second / "file").write_text("long" * MOST_BYTES)

    with full_disk(), pytest.raises(BadInput, match=r"cannot write b: File too large"):
        write_both()
    assert list(Path().iterdir()) == []
