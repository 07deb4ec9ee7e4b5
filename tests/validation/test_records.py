import dataclasses
from pathlib import Path

import pytest

from prunecast.errors import BadInput
from prunecast.launch import USUAL, Conditions
from prunecast.patterns import imbalance
from prunecast.validation.case import RECORD_SCHEMA, RECORDED, recorded
from prunecast.validation.case_maps import map_of
from prunecast.validation.records import COLUMNS, COLUMNS_OF, KIND, Measurement, Run, RunWriter, read_runs
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
    marked = dataclasses.replace(ROW, marks=("spread",), config="128x256", throttle="power cap")
    unnamed = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name=CASE.usual_name))
    (run,) = read_runs(write(tmp_path / "a.csv", ROW, marked, unnamed))
    assert run.header == HEADER
    assert run.rows == (ROW, marked, unnamed)


def test_a_row_that_was_not_measured_has_no_time_and_no_samples(tmp_path):
    (run,) = read_runs(
        write(tmp_path / "a.csv", Measurement(case=CASE, kernel="csr", marks=("skipped: no room",)))
    )
    (row,) = run.rows
    assert (row.seconds, row.samples, row.excess, row.board_spread) == (None, 0, None, None)
    assert not row.usable


@pytest.mark.parametrize(
    ("marks", "usable"),
    [((), True), (("spread",), True), (("wrong",), False), (("spread", "throttled"), False)],
)
def test_rows_with_a_wrong_result_or_of_a_hot_gpu_are_not_used(marks, usable):
    assert dataclasses.replace(ROW, marks=marks).usable == usable


def test_several_runs_share_a_file(tmp_path):
    later = dataclasses.replace(HEADER, date="2026-11-21T00:00:00+00:00")
    runs = Run(header=HEADER, rows=(ROW,)), Run(header=later, rows=(dataclasses.replace(ROW, samples=9),))
    files = [write(tmp_path / f"{run.rows[0].samples}.csv", *run.rows, header=run.header) for run in runs]
    lines = [file.read_text().splitlines() for file in files]
    (kind, head, columns, row), (_, later_head, _, later_row) = lines
    both = [kind, head, later_head.replace("run 1", "run 2"), columns, row, later_row.replace("1,", "2,", 1)]
    (tmp_path / "a.csv").write_text("\n".join([*both, ""]))
    assert read_runs(tmp_path / "a.csv") == runs


@pytest.mark.parametrize("name", RECORDED)
def test_rows_in_other_conditions_are_rows_of_their_own(tmp_path, name):
    other = {"state": "sustained", "l2": "warm", "launch": "stream"}[name]
    usual, changed = (
        ROW,
        dataclasses.replace(ROW, case=dataclasses.replace(CASE, conditions=Conditions.of({name: other}))),
    )
    path = str(write(tmp_path / "a.csv", usual, changed, usual))
    assert read_runs(path)[0].rows == (usual, changed, usual)
    validation = replay([path], engines=("model",))
    assert [row[name] for row in validation.frame_rows()] == [recorded(USUAL)[name], other]
    assert [row[name] for row in validation.cells()] == [row[name] for row in validation.frame_rows()]
    assert rows_left(Suite(name="s", cases=(changed.case,), fingerprint=""), paths=[path]) == 0
    alone = str(write(tmp_path / "b.csv", usual))
    assert rows_left(Suite(name="s", cases=(changed.case,), fingerprint=""), paths=[alone]) == 1


def test_conditions_that_an_older_schema_lacks_are_usual(tmp_path, monkeypatch):
    monkeypatch.setitem(COLUMNS_OF, 1, tuple(name for name in COLUMNS if name not in RECORDED))
    kind, head, *table = write(tmp_path / "a.csv", ROW).read_text().splitlines()
    kept = [place for place, name in enumerate(COLUMNS) if name not in RECORDED]
    rows = [",".join(cells[place] for place in kept) for cells in (line.split(",") for line in table)]
    (tmp_path / "b.csv").write_text("\n".join([f"{KIND}1", head, *rows, ""]))
    assert read_runs(tmp_path / "b.csv") == read_runs(tmp_path / "a.csv")
    (tmp_path / "c.csv").write_text("\n".join([kind, head, *rows, ""]))
    with pytest.raises(BadInput, match="wanted the columns"):
        read_runs(tmp_path / "c.csv")


def test_records_are_never_overwritten(tmp_path):
    path = write(tmp_path / "a.csv", ROW)
    before = path.read_bytes()
    with pytest.raises(BadInput, match="never overwritten"):
        write(path)
    assert path.read_bytes() == before


def test_lines_are_short(tmp_path):
    path = write(tmp_path / "a.csv", ROW)
    assert len(path.read_text().splitlines()[-1]) < 200


HEAD = f"{KIND}{RECORD_SCHEMA}"


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "its first line is not"),
        (["nonsense"], "its first line is not"),
        (["# prunecast validation, schema 9"], "of schema 2, got 9"),
        ([HEAD], "has no run"),
        ([HEAD, "# run 2: {}"], "wanted the header of run 1"),
        ([HEAD, "# run 1: [1"], "no JSON object"),
        ([HEAD, "# run 1: {}"], "the header lacks 'gpu'"),
    ],
)
def test_other_files_are_refused(tmp_path, lines, named):
    path = tmp_path / "a.csv"
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput) as refusal:
        read_runs(path)
    assert named in str(refusal.value)
    assert "a.csv" in str(refusal.value)


@pytest.mark.parametrize(
    ("column", "text", "named"),
    [
        ("run", "2", "row 1 is of run '2'"),
        ("run", "01", "row 1 is of run '01'"),
        ("run", "1" * 5000, "row 1 is of run '111"),
        ("seconds", "fast", "seconds must be a number"),
        ("seconds", "-1", "sensible number"),
        ("seconds", "1e400", "sensible number"),
        ("samples", "7.5", "samples must be a number"),
        ("samples", "", "samples must be a number"),
        ("m", "0", "m must be at least 1"),
        ("dtype", "int3", "dtype must be one of"),
    ],
)
def test_rows_without_sense_are_refused(tmp_path, column, text, named):
    path = write(tmp_path / "a.csv", ROW)
    *head, row = path.read_text().splitlines()
    cells = row.split(",")
    cells[COLUMNS.index(column)] = text
    path.write_text("\n".join([*head, ",".join(cells)]))
    with pytest.raises(BadInput, match=named):
        read_runs(path)


def test_a_record_of_other_columns_is_refused(tmp_path):
    path = write(tmp_path / "a.csv", ROW)
    path.write_text(path.read_text().replace("\nrun,", "\nattempt,"))
    with pytest.raises(BadInput, match="wanted the columns run,"):
        read_runs(path)


def test_replay_predicts_and_summarises(tmp_path):
    wrong = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name="w"), marks=("wrong",))
    skipped = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name="s"), seconds=None)
    other = dataclasses.replace(ROW, case=dataclasses.replace(CASE, name="o"), plan="another")
    validation = replay([str(write(tmp_path / "a.csv", ROW, wrong, skipped, other))], engines=("model",))
    found = validation.families()["stspmm", "burst", "model"]
    assert found.cases == 1
    assert found.worst_case == "c stspmm"
    row = next(row for row in validation.frame_rows() if row["case"] == "c")
    assert row["error"] == pytest.approx(row["predicted_seconds"] / 3.1e-6 - 1)
    assert not validation.families("fit")


@pytest.mark.parametrize("distribution", ["equal", "one-full"])
def test_the_imbalance_of_a_row_is_that_of_its_map(tmp_path, distribution):
    case = dataclasses.replace(CASE, m=512, sparsity=0.75, distribution=distribution)
    (row,) = replay([str(write(tmp_path / "a.csv", dataclasses.replace(ROW, case=case)))]).rows
    assert row.imbalance == pytest.approx(imbalance(map_of(case)))
    assert (row.imbalance == 1.0) == (distribution == "equal")


def test_a_row_without_a_plan_counts_as_even(tmp_path):
    case = dataclasses.replace(CASE, pattern="new:3")
    (row,) = replay([str(write(tmp_path / "a.csv", dataclasses.replace(ROW, case=case)))]).rows
    assert (row.imbalance, row.same_plan) == (1.0, False)
    assert not row.counts


def test_parts_of_a_replay_are_all_of_it(tmp_path):
    rows = [dataclasses.replace(ROW, case=dataclasses.replace(CASE, name=f"{n}", n=n)) for n in (8, 16, 32)]
    path = str(write(tmp_path / "a.csv", *rows))
    parts = [replay([path], engines=("model",), part=(number, 2)).frame_rows() for number in (1, 2)]
    assert [[row["n"] for row in part] for part in parts] == [[8, 32], [16]]


def test_records_of_another_gpu_are_refused(tmp_path):
    path = write(tmp_path / "a.csv", ROW)
    with pytest.raises(BadInput, match="records are of h200-sxm, the spec is of a100-sxm4-80gb"):
        replay([str(path)], gpu="a100-sxm4-80gb")


def test_rows_that_no_record_has_are_counted(tmp_path):
    """Of three rows one was measured, and one skipped; the sustained one was not begun."""
    both = dataclasses.replace(CASE, kernels=("stspmm", "csr"))
    long = dataclasses.replace(CASE, conditions=Conditions("sustained"))
    suite = Suite(name="s", cases=(both, long), fingerprint="0" * 16)
    skipped = dataclasses.replace(ROW, kernel="csr", seconds=None, marks=("skipped: too large",))
    path = str(write(tmp_path / "a.csv", ROW, skipped))
    assert rows_left(suite, paths=[]) == 3
    assert rows_left(suite, paths=[path]) == 1


def test_every_record_of_the_repository_is_read():
    root = Path(__file__).parents[2]
    found = [
        p for p in (root / "benchmarks" / "measured").glob("*.csv") if p.read_text()[: len(KIND)] == KIND
    ]
    found += (root / "src" / "prunecast" / "validation" / "recorded").glob("*.csv")
    assert len(found) >= 3
    for path in found:
        assert all(run.rows for run in read_runs(path))
