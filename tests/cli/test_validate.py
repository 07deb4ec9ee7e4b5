import json
from dataclasses import replace
from pathlib import Path

import pytest

from prunecast.cli.progress import PROGRESS
from prunecast.validation.records import Measurement, RunWriter
from tests.validation.tiny_run import CASE, HEADER


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def record(tmp_path):
    writer = RunWriter(tmp_path / "run.csv", HEADER)
    writer.add(Measurement(case=CASE, kernel="stspmm", seconds=3e-6, spread=0.01, clock_mhz=1800.0))
    writer.close()
    return str(tmp_path / "run.csv")


def test_replay_prints_errors_by_family(run, record):
    code, out, _ = run("validate", "--replay", record, "--engine", "model")
    assert code == 0
    assert "stspmm  burst  model   judge" in out


def test_json_holds_rows_and_families(run, record):
    code, out, _ = run("validate", "--replay", record, "--engine", "model", "--json")
    assert code == 0
    document = json.loads(out)
    (row,) = document["rows"]
    assert {"measured_seconds", "predicted_seconds", "spread", "clock_mhz"} <= set(row)
    assert row["measured_seconds"] == 3e-6
    (family,) = document["families"]
    assert {"kernel", "mape", "p90", "bias", "spearman"} <= set(family)


def test_report_and_intervals_are_written(run, record, tmp_path):
    code, _, _ = run(
        "validate",
        "--replay",
        record,
        "--engine",
        "model",
        "--report",
        "page.md",
        "--intervals",
        "table.toml",
    )
    assert code == 0
    assert "# Predicted against measured" in (tmp_path / "page.md").read_text()
    assert "schema = 1" in (tmp_path / "table.toml").read_text()


def test_rows_that_cannot_be_predicted_say_why(run, tmp_path):
    writer = RunWriter(tmp_path / "run.csv", HEADER)
    writer.add(Measurement(case=replace(CASE, pattern="new:3"), kernel="stspmm", seconds=3e-6))
    writer.close()
    code, out, _ = run("validate", "--replay", "run.csv", "--engine", "model")
    assert code == 0
    assert "1 row not predicted, the first: unknown pattern 'new:3'" in out
    assert "another plan" not in out


def test_a_part_without_a_row_is_refused(run, tmp_path):
    """Nothing would be printed, as if all predictions were right."""
    writer = RunWriter(tmp_path / "run.csv", HEADER)
    writer.add(Measurement(case=CASE, kernel="stspmm", seconds=3e-6))
    writer.close()
    asked = ("validate", "--replay", "run.csv", "--engine", "model", "--part")
    assert run(*asked, "1/2")[0] == 0
    code, out, error = run(*asked, "2/2")
    assert (code, out) == (2, "")
    assert "part 2/2 holds no row: there are rows of 1 layers" in error


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--replay", "none.csv"), "none.csv: wanted a record of a validation, cannot read it: No such"),
        (("--suite", "none.toml"), "none.toml: wanted a suite, cannot read it: No such file"),
        (("--engine", "guess"), "engine must be both"),
        (("--part", "two"), "part must be I/N"),
        (("--replay", "a", "--record", "b"), "measures nothing"),
        (("--replay", "a", "--suite", "second"), "--suite second has no effect: --replay measures nothing"),
        (("--replay", "a", "--resume", "b"), "--resume b has no effect: --replay measures nothing"),
        (("--replay", "a", "--seconds", "9"), "--seconds 9.0 has no effect: --replay measures nothing"),
        (("--replay", "a", "--pattern", "2:4"), "--pattern 2:4 is of a whole model: give --model too"),
        (("--sparsity", "7"), "--sparsity 7.0 is of a whole model: give --model too"),
        (("--blocks", "2"), "--blocks 2 is of a whole model: give --model too"),
        (("--workload", "prefill:16"), "--workload prefill:16 is of a whole model: give --model too"),
        (("--seconds", "nan"), "seconds must be a number, got nan"),
        (("--seconds", "0"), "seconds must be above 0, got 0"),
        (("--report", "none/page.md"), "--report must lie in a folder that exists, got none/page.md"),
        (("--intervals", "none/t.toml"), "--intervals must lie in a folder that exists, got none/t.toml"),
    ],
)
def test_bad_input_is_one_line(run, arguments, named):
    code, _, error = run("validate", *arguments)
    assert code == 2
    assert named in error
    assert error.count("\n") == 1


def test_calibrate_writes_a_spec_from_raw_numbers(run, tmp_path):
    raw = {"latency": {"shared_cycles": 24.0, "l1_cycles": 40.0}}
    document = {"schema": 1, "date": "2026-11-20", "driver": "580", "commit": "c", "raw": raw}
    (tmp_path / "raw.json").write_text(json.dumps(document))
    code, out, _ = run("calibrate", "mine.toml", "--raw", "raw.json", "--json")
    assert code == 0
    assert {row["quantity"]: row["value"] for row in json.loads(out)["quantities"]}["l1_latency_cycles"] == 40
    assert run("gpus", "mine.toml")[0] == 0
    code, _, error = run("calibrate", "mine.toml", "--raw", "raw.json")
    assert code == 2
    assert "exists" in error


@pytest.mark.parametrize("text", ["no toml", "other = 1", "schema = 2", "[[validated]]\ngpu = 'h200-sxm'"])
def test_a_file_that_is_no_table_of_intervals_is_refused_before_the_work(run, record, tmp_path, text):
    (tmp_path / "f").write_text(text)
    code, out, error = run("validate", "--replay", "missing.csv", "--intervals", "f")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert "f: wanted a table of intervals" in error
    assert (tmp_path / "f").read_text() == text


def test_a_table_of_intervals_is_extended(run, record, tmp_path):
    for _ in range(2):
        assert run("validate", "--replay", record, "--engine", "model", "--intervals", "t.toml")[0] == 0
    assert (tmp_path / "t.toml").read_text().count("schema = 1") == 1


def test_a_report_is_a_page_in_markdown(run, record):
    code, _, error = run("validate", "--replay", record, "--report", record)
    assert code == 2
    assert "--report must name a .md file, got" in error


@pytest.mark.parametrize("spec", ["", ".", "/", ".."])
@pytest.mark.parametrize("more", [(), ("--raw", "raw.json")])
def test_a_spec_without_a_name_is_refused(run, spec, more):
    code, _, error = run("calibrate", spec, *more)
    assert (code, error.count("\n")) == (2, 1)
    assert "SPEC must name a .toml file" in error


@pytest.fixture
def measured(monkeypatch):
    """Replaces the measurement by one that records a row per case and begins only the first `begun`."""
    asked = {"begun": 2}

    def record_suite(suite, *, out, log, **options):
        asked.update(options, out=out)
        writer = RunWriter(out, HEADER)
        for case in suite.cases[: asked["begun"]]:
            writer.add(Measurement(case=case, kernel="stspmm", seconds=3e-6))
            log(case.name)
        writer.close()

    monkeypatch.setattr("prunecast.validation.validate.record_suite", record_suite)
    monkeypatch.setenv(PROGRESS, "0")
    return asked


def suite_of(*tokens):
    case = 'm = 256\nk = 256\npattern = "tile-wise:128"\nsparsity = 0.5\nkernels = ["stspmm"]'
    cases = [f'[[case]]\nname = "{n} tokens"\nn = {n}\n{case}' for n in tokens]
    Path("s.toml").write_text("\n".join(['schema = 1\nname = "s"', *cases]))
    return "--suite", "s.toml"


@pytest.mark.parametrize("part", [(), ("--part", "1/2")])
def test_all_rows_that_were_measured_are_predicted(run, measured, part):
    """Also if they are a part of the suite: the record does not contain the other parts."""
    code, out, error = run(
        "validate", *suite_of(128, 64), *part, "--record", "r.csv", "--engine", "model", "--json"
    )
    assert code == 0
    assert {row["case"] for row in json.loads(out)["rows"]} == {"128 tokens", "64 tokens"}
    assert "prunecast: measuring: 128 tokens\n" in error
    assert "not begun" not in error
    assert measured["part"] == ((1, 2) if part else (1, 1))
    assert measured["gpu"] == "h200-sxm"


@pytest.mark.parametrize(("begun", "words"), [(2, None), (1, "1 row not"), (0, "2 rows not")])
def test_rows_that_were_not_begun_are_counted_and_can_be_resumed(run, measured, begun, words):
    measured["begun"] = begun
    code, _, error = run(
        "validate", *suite_of(128, 64), "--record", "r.csv", "--engine", "model", "--seconds", "7"
    )
    assert code == 0
    told = [line for line in error.splitlines() if "not begun" in line]
    begun_in = f"{words} begun in 7 s; --resume r.csv with more --seconds measures them"
    assert told == ([f"prunecast: {begun_in}"] if words else [])


def test_a_resumed_record_is_part_of_the_result(run, measured):
    assert run("validate", *suite_of(128), "--record", "a.csv", "--engine", "model")[0] == 0
    options = ("--resume", "a.csv", "--record", "b.csv", "--engine", "model", "--json")
    code, out, error = run("validate", *suite_of(64), *options)
    assert code == 0
    assert {row["case"] for row in json.loads(out)["rows"]} == {"128 tokens", "64 tokens"}
    assert measured["resume"] == ["a.csv"]
    assert "not begun" not in error


def test_a_record_without_a_name_is_named_by_the_time(run, measured):
    assert run("validate", *suite_of(64), "--engine", "model")[0] == 0
    assert measured["out"].name.startswith("validation-")
    assert measured["out"].exists()


@pytest.mark.parametrize(
    ("asked", "engines"),
    [("both", {"simulator", "model"}), ("model", {"model"}), ("simulator", {"simulator"})],
)
def test_engines_are_those_that_were_asked_for(run, record, asked, engines):
    code, out, _ = run("validate", "--replay", record, "--engine", asked, "--json")
    assert code == 0
    assert {row["engine"] for row in json.loads(out)["rows"]} == engines
