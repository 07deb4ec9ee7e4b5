import dataclasses
import json

import pytest

from prunecast.errors import BadInput
from prunecast.validation.records import Measurement, RunWriter, read_run
from prunecast.validation.suite import Suite
from prunecast.validation.validate import replay, rows_left
from tests.validation.tiny_run import CASE, HEADER

ROW = Measurement(
    case=CASE, kernel="stspmm", seconds=3.1e-6, low_s=3e-6, high_s=3.2e-6, spread=0.06, samples=7
)


def write(path, *rows, header=HEADER):
    writer = RunWriter(path, header)
    for row in rows:
        writer.add(row)
    writer.close()
    return path


def test_what_is_written_is_read(tmp_path):
    marked = dataclasses.replace(ROW, marks=("spread",), variant="128x256", throttle="power cap")
    run = read_run(write(tmp_path / "a.jsonl", ROW, marked))
    assert run.header == HEADER
    assert run.rows == (ROW, marked)


def test_records_are_never_overwritten(tmp_path):
    path = write(tmp_path / "a.jsonl", ROW)
    before = path.read_bytes()
    with pytest.raises(BadInput, match="never overwritten"):
        write(path)
    assert path.read_bytes() == before


def test_lines_are_short(tmp_path):
    path = write(tmp_path / "a.jsonl", ROW)
    assert len(path.read_text().splitlines()[1]) < 400


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "no header"),
        (["{}"], "no header"),
        (["nonsense"], "one JSON object per line, but line 1 is none"),
        (["{}", "", '{"cut'], "but line 3 is none"),
        ([json.dumps({"kind": "prunecast validation", "schema": 9})], "must be of schema 1, got 9"),
        ([json.dumps({"kind": "prunecast validation", "schema": 1})], "lacks"),
    ],
)
def test_other_files_are_refused(tmp_path, lines, named):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput) as refusal:
        read_run(path)
    assert named in str(refusal.value)
    assert "a.jsonl" in str(refusal.value)


def test_replay_predicts_and_summarises(tmp_path):
    wrong = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name="w"), marks=("wrong",))
    skipped = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name="s"), seconds=None)
    other = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name="o"), plan="another")
    validation = replay([str(write(tmp_path / "a.jsonl", ROW, wrong, skipped, other))], engines=("model",))
    found = validation.families()["stspmm", "burst", "model"]
    assert found.cases == 1
    assert found.worst_case == "c stspmm"
    row = next(row for row in validation.row_documents() if row["case"] == "c")
    assert row["error"] == pytest.approx(row["predicted_seconds"] / 3.1e-6 - 1)
    assert not validation.families("fit")


def test_records_of_another_gpu_are_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", ROW)
    with pytest.raises(BadInput, match="records are of h200-sxm, the spec is of a100-sxm4-80gb"):
        replay([str(path)], gpu="a100-sxm4-80gb")


def test_rows_that_no_record_has_are_counted(tmp_path):
    """Of three rows one was measured, and one skipped; the sustained one was not begun."""
    both = dataclasses.replace(CASE, kernels=("stspmm", "csr"))
    long = dataclasses.replace(CASE, state="sustained")
    suite = Suite(name="s", cases=(both, long), fingerprint="0" * 16)
    skipped = dataclasses.replace(ROW, kernel="csr", seconds=None, marks=("skipped: too large",))
    path = str(write(tmp_path / "a.jsonl", ROW, skipped))
    assert rows_left(suite, paths=[]) == 3
    assert rows_left(suite, paths=[path]) == 1
