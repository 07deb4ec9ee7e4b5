"""What files say reaches no terminal and no spreadsheet as it is, and no line is endless."""

import csv
import io
import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.hardware.load import spec_text

FAST = ("--engine", "model", "--tokens", "64", "--no-crossovers")
RAW = {"schema": 1, "date": "2026-11-20", "driver": "580", "commit": "c", "raw": {}}
LATENCY = {"shared_cycles": 24.0, "l1_cycles": 40.0}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def predictions(path, seconds=1e-6, gpu="g", layer="a"):
    row = {"layer": layer, "kernel": "dense", "n": 1, "pattern": "dense", "seconds": seconds}
    text = json.dumps({"schema_version": 1, "gpu": gpu, "predictions": [row]})
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text.replace("Infinity", "1e999"))


@pytest.mark.parametrize("seconds", [float("inf"), 1e308, 5e-324, 0.0, -1.0])
def test_compare_refuses_times_that_cannot_be(run, seconds):
    predictions("a.json")
    predictions("b.json", seconds)
    for form in ((), ("--json",), ("--csv",)):
        code, out, err = run("compare", "a.json", "b.json", *form)
        assert (code, out, err.count("\n")) == (2, "", 1)


def test_compare_keeps_both_columns_of_files_called_alike(run):
    predictions("d1/p.json", 1e-6)
    predictions("d2/p.json", 2e-6)
    code, out, _ = run("compare", "d1/p.json", "d2/p.json", "--csv")
    (row,) = csv.DictReader(io.StringIO(out))
    assert code == 0
    assert {float(v) for name, v in row.items() if name.startswith("seconds")} == {1e-6, 2e-6}


def test_compare_prints_no_control_character(run):
    for name in ("a.json", "b.json"):
        predictions(name, gpu="\x1b[31mred\nline", layer="x\x1b[2J\n")
    for form in ((), ("--csv",)):
        _, out, _ = run("compare", "a.json", "b.json", *form)
        assert "\x1b" not in out
        assert "\nline" not in out


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "a\x1b[31m", "a\nb"])
def test_cells_of_csv_are_no_formulas(run, name):
    save_file({name: np.ones((64, 64), np.float16)}, "w.safetensors")
    code, out, _ = run("predict", "w.safetensors", *FAST, "--csv")
    assert code == 0
    for row in csv.DictReader(io.StringIO(out)):
        assert row["layer"][0] not in "=+-@"
        assert row["layer"].isprintable()


def test_lines_end(run):
    save_file({"x" * 1_000_000: np.ones((64, 64), np.int8)}, "w.safetensors")
    code, _, err = run("predict", "w.safetensors", *FAST)
    assert code == 2
    assert len(err) <= 501
    assert "int8" in err.lower() or "I8" in err


@pytest.mark.parametrize("name", [b"\xff.npy", b"\xff.mtx", b"\xff.npz"])
@pytest.mark.parametrize("command", ["predict", "prune", "report", "explain"])
def test_names_that_are_no_text(run, name, command):
    weights = np.random.default_rng(0).standard_normal((128, 128)).astype(np.float32)
    if name.endswith(b".npy"):
        with open(name, "wb") as file:
            np.save(file, weights)
    elif name.endswith(b".npz"):
        with open(name, "wb") as file:
            np.savez(file, a=weights)
    else:
        with open(name, "w") as file:
            file.write("%%MatrixMarket matrix array real general\n128 128\n" + "1.5 " * 128 * 128)
    shown = os.fsdecode(name)
    arguments = {
        "predict": (shown, *FAST, "-o", "p.json"),
        "prune": (shown, "-o", "out", "--pattern", "tile-wise:64"),
        "report": (shown, *FAST[:4], "-o", "r.html"),
        "explain": (shown, *FAST[:4]),
    }[command]
    code, _, err = run(command, *arguments)
    assert code == 0, err


def raw(**changes):
    with open("raw.json", "w") as file:
        json.dump({**RAW, "raw": {"latency": LATENCY}, **changes}, file)


@pytest.mark.parametrize(
    "changes",
    [
        {"date": None},
        {"raw": 5},
        {"raw": {"latency": {}}},
        {"raw": {"latency": 5}},
        {"raw": {"latency": {**LATENCY, "l1_cycles": "many"}}},
        {"raw": {"latency": {**LATENCY, "l1_cycles": -4.0}}},
        {"raw": {"latency": {**LATENCY, "l1_cycles": [40.0]}}},
        {"raw": {"latency": {**LATENCY, "l1_cycles": 1e17}}},
        {"raw": {"bandwidth": {"read_1_mib": 1.0}}},
        {"raw": {"waiting": {"barrier_round_trip_cycles": 0.0}}},
        {"date": "2026\x1b[31m"},
        {"commit": "c" * 10_000},
    ],
)
def test_raw_numbers_that_make_no_spec(run, changes):
    raw(**changes)
    code, out, err = run("calibrate", "mine.toml", "--raw", "raw.json")
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert not os.path.exists("mine.toml")


@pytest.mark.parametrize(
    "text", ['{"schema":1,"raw":{}}', '{"schema":1,"raw":{"latency":{"l1_cycles":1e999}}}']
)
def test_raw_files_that_lack_something(run, text):
    with open("raw.json", "w") as file:
        file.write(text)
    assert run("calibrate", "mine.toml", "--raw", "raw.json")[0] == 2


@pytest.mark.parametrize("name", ['q"uote', "back\\slash", "\\g<head>", "ü"])
def test_any_name_and_date_give_a_spec_that_is_read(run, name):
    raw(date=name, driver=name)
    assert run("calibrate", f"{name}.toml", "--raw", "raw.json")[0] == 0
    assert run("gpus", f"{name}.toml")[0] == 0


@pytest.mark.parametrize(
    "command", ["predict", "gpus", "compare", "calibrate", "validate", "mtx", "smtx", "onnx"]
)
@pytest.mark.parametrize("source", ["/dev/zero", "pipe"])
def test_reads_of_what_never_ends(run, model, command, source):
    if source == "pipe":
        os.mkfifo("pipe")
    for suffix in ("toml", "json", "mtx", "smtx", "onnx", "jsonl"):
        os.symlink(source, f"x.{suffix}")
    predictions("a.json")
    arguments = {
        "predict": ("predict", model, *FAST, "--gpu", "x.toml"),
        "gpus": ("gpus", "x.toml"),
        "compare": ("compare", "a.json", "x.json"),
        "calibrate": ("calibrate", "mine.toml", "--raw", "x.json"),
        "validate": ("validate", "--replay", "x.jsonl"),
    }.get(command, ("predict", f"x.{command}", *FAST))
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "got a device" in err or "got a pipe" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "model.safetensors", *FAST, "-o", "node.json"),
        ("report", "model.safetensors", "-o", "node.html"),
        ("search", "model.safetensors", "--storage", "node.json", "--latency", "60%"),
        ("sweep", "-o", "node.sqlite", "--shape", "64x64x64"),
        ("timeline", "model.safetensors", "--target", "re:a", "-o", "node.json"),
        ("validate", "--replay", "bundled", "--intervals", "node.json"),
        ("prune", "model.safetensors", "-o", "node.json", "--pattern", "2:4"),
    ],
)
def test_outputs_that_are_no_files(run, model, arguments):
    for suffix in ("json", "html", "sqlite"):
        os.mkfifo(f"node.{suffix}")
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert "pipe" in err or "folder" in err


def test_a_sweep_writes_no_table(run):
    code, _, err = run("sweep", "-o", "sweep.csv", "--shape", "64x64x64")
    assert code == 2
    assert "SQLite" in err
    assert not os.path.exists("sweep.csv")


def test_a_spec_cannot_be_called_anything(run):
    with open("gpu.toml", "w") as file:
        file.write(spec_text("h200-sxm").replace('name = "h200-sxm"', 'name = "\\u001b[31m"'))
    code, _, err = run("gpus", "gpu.toml")
    assert code == 2
    assert "printable" in err


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("sm_count", "92000"),
        ("dram_bytes_per_s", "5e-324"),
        ("gather_bytes_per_clk_per_sm", "1e-300"),
        ("dram_latency_cycles", "900000000000000000"),
    ],
)
def test_specs_of_no_gpu(run, quantity, value):
    head, _, rest = spec_text("h200-sxm").partition(f"[{quantity}]\n")
    with open("gpu.toml", "w") as file:
        file.write(f"{head}[{quantity}]\nvalue = {value}\n{rest.partition(chr(10))[2]}")
    code, _, err = run("gpus", "gpu.toml")
    assert code == 2
    assert quantity in err


@pytest.mark.parametrize(
    "options",
    [
        ("--first-waves", "999999999999999999999"),
        ("--sm", ",".join(["0-3000000"] * 10)),
        ("--sm", "0-99999999"),
    ],
)
def test_timelines_of_too_much(run, model, options):
    code, out, err = run("timeline", model, "--target", "re:a", "-n", "64", *options)
    assert (code, out, err.count("\n")) == (2, "", 1), err


def test_names_beyond_what_a_file_system_takes(run):
    for arguments in (("predict", "x" * 300 + ".npy"), ("prune", "x" * 300 + ".npy", "-o", "out")):
        assert run(*arguments)[0] == 2
    np.save("w.npy", np.ones((64, 64), np.float16))
    assert run("prune", "w.npy", "--pattern", "2:4", "-o", "x" * 300)[0] == 2
