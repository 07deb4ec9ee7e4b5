import csv
import io
import json
import re

import numpy as np
import pytest
from safetensors.numpy import save_file

from prunecast.codesign import INTERVAL_KIND

FAST = ("--engine", "model", "--tokens", "256")
FIELDS = ["layer", "m", "k", "n", "dtype", "pattern", "sparsity", "kernel", "engine", "state"]
FIELDS += ["seconds", "seconds_low", "seconds_high", "speedup_over_dense", "bound"]


def test_json_is_one_object_with_the_promised_fields(run, model):
    code, out, err = run("predict", model, *FAST, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out, parse_constant=pytest.fail)
    assert document["schema_version"] == 1
    assert {"version", "gpu", "spec_hash", "weights_hash", "crossovers"} <= set(document)
    assert len(document["predictions"]) == 14
    for row in document["predictions"]:
        assert list(row)[: len(FIELDS)] == FIELDS
    assert {row["layer"] for row in document["predictions"]} == {"[bold]a[/].weight", "b\x1b[31m.weight"}
    for row in document["crossovers"]:
        assert {"layer", "kernel", "sparsity", "density"} <= set(row)


def test_the_same_command_prints_the_same_bytes(run, model):
    assert run("predict", model, *FAST, "--json") == run("predict", model, *FAST, "--json")


def test_csv_has_a_row_for_each_prediction(run, model):
    _, out, _ = run("predict", model, *FAST, "--csv", "--no-crossovers")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 14
    assert list(rows[0])[: len(FIELDS)] == FIELDS
    assert float(rows[0]["seconds"]) > 0


def test_the_table_is_for_people(run, model):
    code, out, _ = run("predict", model, *FAST)
    assert code == 0
    assert "[bold]a[/].weight (256 x 128)" in out
    assert "b\\x1b[31m.weight (128 x 128)" in out
    assert "\x1b" not in out
    assert INTERVAL_KIND in out
    assert "Density below which a kernel beats dense" in out
    fastest, layers, in_torch = out.splitlines()[-3:]
    assert fastest.startswith("Fastest per layer:")
    assert layers.startswith("All layers: dense")
    assert in_torch.startswith("In a token-major model")
    rows = [line.split() for line in out.splitlines() if line.startswith("  ")][1:15]
    assert [row[0] for row in rows[:7]] == [
        *("dense", "tile-wise", "stspmm", "block-sparse", "2:4", "cusparselt", "csr")
    ]
    assert all(len(line) <= 100 for line in out.splitlines() if not line.startswith(("note", "skipped")))


@pytest.mark.parametrize(("gpu", "told"), [("l4", "nothing was ever measured"), ("b200", "tcgen05")])
def test_what_was_never_measured_is_said(run, model, gpu, told):
    assert told in run("predict", model, *FAST, "--gpu", gpu)[1]


@pytest.mark.parametrize(
    ("gpu", "has"),
    [
        ("b200", True),
        ("b300", True),
        ("jetson-agx-thor", True),
        ("rtx-5090", False),
        ("gb10", False),
        ("h200-sxm", False),
    ],
)
def test_only_gpus_that_have_tcgen05_are_told_of_it(run, model, gpu, has):
    """Compute capability 12 came later and multiplies with mma.sync (PTX ISA, tcgen05)."""
    options = ("-n", "64", "--engine", "model", "--kernel", "stspmm", "--no-crossovers")
    assert ("tcgen05" in run("predict", model, *options, "--gpu", gpu)[1]) == has


def test_a_file_gets_the_form_of_its_ending_and_the_terminal_the_table(run, model, tmp_path):
    _, shown, _ = run("predict", model, *FAST, "-o", "out.json")
    assert shown.startswith("h200-sxm, 256 tokens")
    _, printed, _ = run("predict", model, *FAST, "--json", "--output", "out.csv")
    assert (tmp_path / "out.json").read_text() == printed
    assert (tmp_path / "out.csv").read_text().startswith("layer,m,k,n")


def test_options_reach_the_prediction(run, model):
    arguments = ("--gpu", "l4", "-n", "64", "--sparsity", "0.5", "--pattern", "tw:64", "--kernel", "stspmm")
    arguments += ("--kernel", "csr", "--engine", "model", "--state", "sustained", "--launch", "stream")
    arguments += ("--dtype", "bf16", "--target", "re:a", "--ignore", "re:b.31m", "--scope", "global")
    document = json.loads(run("predict", model, *arguments, "--json")[1])
    assert (document["gpu"], document["launch"], document["tokens"]) == ("l4", "stream", 64)
    assert document["asked"] == {"pattern": "tw:64", "sparsity": 0.5, "scope": "global"}
    rows = document["predictions"]
    assert [row["kernel"] for row in rows] == ["dense", "stspmm", "csr"]
    assert {row["layer"] for row in rows} == {"[bold]a[/].weight"}
    assert {(row["dtype"], row["state"], row["n"]) for row in rows} == {("bf16", "sustained", 64)}
    assert {row["pattern"] for row in rows} == {"dense", "tile-wise:64"}


def test_a_missed_speedup_is_exit_one_with_the_report(run, model):
    code, out, err = run("predict", model, *FAST, "--json", "--min-speedup", "1000")
    assert code == 1
    assert json.loads(out)["predictions"]
    assert err.count("\n") == 1
    assert "below the 1000 asked for" in err
    assert run("predict", model, *FAST, "--json", "--min-speedup", "0.001")[0] == 0


def test_the_simulator_is_the_default(run, model):
    _, out, _ = run("predict", model, "-n", "64", "--json", "--kernel", "tile-wise", "--no-crossovers")
    assert {row["engine"] for row in json.loads(out)["predictions"]} == {"simulator"}


def test_convolutions_are_named_by_their_input(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    filters = {"a": rng.standard_normal((64, 64, 3, 3)), "b": rng.standard_normal((64, 64, 1, 1))}
    save_file({name: array.astype(np.float16) for name, array in filters.items()}, "net.safetensors")
    options = ("--input", "14x14", "--input", "b=7x7", "--stride", "a=2", "--batch", "8", "--no-crossovers")
    code, out, _ = run("predict", "net.safetensors", *FAST, *options, "--json")
    assert code == 0
    rows = json.loads(out)["predictions"]
    assert {row["layer"]: row["n"] for row in rows} == {"a": 7 * 7 * 8, "b": 7 * 7 * 8}
    _, shown, _ = run("predict", "net.safetensors", *FAST, *options, "--conv", "im2col")
    assert "a (64 x 576, N 392)" in shown
    assert shown.startswith("h200-sxm, 8 images, model")  # -n is of layers that are not convolutions
    assert "convolution with im2col, its time included" in shown
    code, _, err = run("predict", "net.safetensors", *FAST, "--input", "14")
    assert (code, err) == (2, "prunecast: error: input: wanted HxW or SELECTOR=HxW, got '14'\n")


def test_notes_name_the_kernel_that_they_are_about(run, model):
    code, out, _ = run("predict", model, "--tokens", 65536, "--engine", "model", "--no-crossovers")
    assert code == 0
    outside = r"^note: .*block-sparse.*: 65536 tokens is outside the validated range, \d+ to \d+ tokens \("
    assert re.search(outside, out, re.M)
    assert "csr: 65536" not in out  # a thirtieth of dense: how sure its time is matters to nobody
    assert "note: 2:4 removes 50%, not 75% (2 layers)" in out


def test_padding_that_pays_is_said(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(0).standard_normal((1024, 1024)).astype(np.float16)
    np.save("a.npy", weights)
    options = ("--engine", "model", "--no-crossovers", "--kernel", "small-n")
    _, odd, _ = run("predict", "a.npy", *options, "--tokens", 33)
    assert re.search(r"note: small-n: padded to 40 tokens it would take [\d.]+ us", odd)
    _, even, _ = run("predict", "a.npy", *options, "--tokens", 40)
    assert "padded to" not in even


def test_crossovers_of_equal_shapes_are_a_range(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    named = {f"l{i}": rng.standard_normal((256, 256)).astype(np.float16) for i in range(3)}
    save_file({**named, "other": rng.standard_normal((128, 256)).astype(np.float16)}, "w.safetensors")
    code, out, _ = run("predict", "w.safetensors", "--engine", "model", "--kernel", "stspmm")
    assert code == 0
    lines = [line for line in out.splitlines() if re.match(r"(l0 and 2 of its shape|other)  +\d", line)]
    assert len(lines) == 2


def test_crossovers_that_were_asked_for_are_printed_with_the_summary_of_a_model(run):
    asked = ("bert-small", "--workload", "batch:2", "--engine", "model", "--kernel", "stspmm")
    found = [run("predict", *asked, *more)[1] for more in ((), ("--crossovers",))]
    assert ["Density below which" in out for out in found] == [False, True]
    assert re.search(r"^layer\.0\.up +\d+%$", found[1], re.MULTILINE)
    assert found[1].startswith(found[0])


def test_a_timeline_says_what_it_shows(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float16))
    code, out, _ = run("timeline", "a.npy", "-o", "t.json.gz", "--kernel", "stspmm", "-n", "4096")
    assert code == 0
    found = re.search(
        r"SMs 0-3 of 132, the first 2 items .*: up to ([\d.]+) us of ([\d.]+) us \((.*)\)\.", out
    )
    assert found
    assert found[3] == "burst, launched in a graph, operands in DRAM"
    assert 0 < float(found[1]) <= float(found[2])


def test_a_timeline_is_always_of_a_launch_in_a_graph(run, model):
    code, out, error = run("timeline", model, "--launch", "stream")
    assert (code, out) == (2, "")
    assert "No such option: --launch" in error


def test_states_of_l2_and_power_limits_are_said_and_matter(run, model):
    def dense_us(*options):
        code, out, _ = run("predict", model, *FAST, "--gpu", "l40s", "--json", *options)
        assert code == 0
        document = json.loads(out)
        return document, document["predictions"][0]["seconds"]

    cold, cold_s = dense_us()
    warm, warm_s = dense_us("--l2", "warm")
    assert cold["l2"] == "cold"
    assert warm["l2"] == "warm"
    assert warm_s < cold_s
    limited, _ = dense_us("--power-limit", "200")
    assert limited["power_limit_w"] == 200
    assert limited["spec_hash"] != cold["spec_hash"]
    out = run("predict", model, *FAST, "--gpu", "l40s", "--l2", "model", "--power-limit", "200")[1]
    assert "launched in a graph, B in L2, 200 W" in out


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--l2", "hot"), "l2 must be one of cold, model, warm"),
        (("--power-limit", "9"), "power-limit must be"),
    ],
)
def test_states_that_are_none_are_refused_in_a_line(run, model, options, told):
    code, out, err = run("predict", model, *FAST, *options)
    assert (code, out) == (2, "")
    assert told in err


def test_a_model_by_name_leads_with_the_whole(run):
    code, out, _ = run("predict", "llama-3.2-1b", "--workload", "decode:4@512", "--engine", "model")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "llama-3.2-1b on h200-sxm: next token of 4 sequences, 512 cached tokens each"
    assert lines[1].startswith("dense ")
    assert "tokens/s" in lines[2]
    assert "a sequence" in lines[2]
    assert "largest batch" in lines[4]
    assert lines[5].strip().startswith("of it")
    assert lines[6].strip().startswith("energy")
    assert lines[7].strip().startswith("by kind")
    assert any(line.strip().startswith("bound") for line in lines[8:10])
    assert len(lines) <= 23
    assert all(len(line) <= 80 for line in lines[:10])
    assert all(len(line) <= 90 for line in lines if not line.startswith(("note", "skipped")))
    assert "Density below which" not in out
    _, detailed, _ = run(
        *("predict", "llama-3.2-1b", "--workload", "decode:4@512", "--engine", "model"),
        *("--details", "--no-crossovers"),
    )
    assert detailed.splitlines()[:8] == lines[:8]
    assert "(low - high)" in detailed


def test_kinds_add_up_to_the_model(run):
    asked = ("predict", "bert-small", "--workload", "batch:2", "--engine", "model", "--json")
    document = json.loads(run(*asked)[1])
    assert document["source"] == "bert-small"
    (phase,) = document["whole_model"]["phases"]
    for side in ("dense", "best"):
        outcome = phase[side]
        assert sum(outcome["seconds_by_kind"].values()) == pytest.approx(outcome["seconds"])
        assert outcome["seconds_low"] <= outcome["seconds"] <= outcome["seconds_high"]
        assert outcome["fits"]
    assert phase["best"]["memory_bytes"]["weights"] < phase["dense"]["memory_bytes"]["weights"]


def test_a_model_that_does_not_fit_says_so_first(run):
    asked = ("llama-3.2-1b", "--gpu", "rtx-4090", "--workload", "decode:64@32768", "--engine", "model")
    asked += ("--kernel", "stspmm", "--no-crossovers")
    _, out, _ = run("predict", *asked)
    assert out.splitlines()[1].startswith("DOES NOT FIT: dense needs 71.2 GB of 25.8 GB")
    document = json.loads(run("predict", *asked, "--json")[1])
    (phase,) = document["whole_model"]["phases"]
    assert not phase["dense"]["fits"]
    assert 0 < phase["dense"]["largest_batch"] < 64


def test_passes_that_need_different_kernels_keep_both_forms(run):
    """Prefill runs tile kernels and decode small-n: each has its own image of the weights."""
    weights = {}
    for workload in ("prefill:2048", "decode:1@512", "prefill:2048,decode:1@512"):
        asked = ("predict", "qwen2.5-0.5b", "--workload", workload, "--engine", "model", "--json")
        document = json.loads(run(*asked, "--pattern", "tile-wise:128")[1])
        weights[workload] = document["whole_model"]["phases"][0]["best"]["memory_bytes"]["weights"]
    alone, both = list(weights.values())[:2], weights["prefill:2048,decode:1@512"]
    assert max(alone) < both <= sum(alone)


def test_tensors_that_are_skipped_are_named_where_notes_are_cut():
    from prunecast.cli.predict import MOST_NOTES, _notes
    from prunecast.workload.layers import Skipped

    kernels = [Skipped(layer="a", kernel=f"k{place}", reason="too small") for place in range(MOST_NOTES)]
    tensors = [Skipped(layer="config.json", kernel=None, reason="model_type is not known")]
    lines = list(_notes([], [*kernels, *tensors]))
    assert "skipped: config.json: model_type is not known" in lines
    assert len(lines) == MOST_NOTES + 1
    assert lines[-1] == "... and 1 more notes, see --json"


@pytest.mark.parametrize(("pruned", "words"), [(20e9, "20.0 GB fits"), (25e9, "25.0 GB does not either")])
def test_the_line_about_a_model_that_does_not_fit_tells_whether_the_pruned_one_does(pruned, words):
    from prunecast.cli.model_page import misfit
    from prunecast.workload.memory import PassMemory

    dense, best = (PassMemory(batch=1, weights=size, cache=0.0, activations=0.0) for size in (30e9, pruned))
    assert [*misfit(dense, best, 24e9)] == [
        f"DOES NOT FIT: dense needs 30.0 GB of 24.0 GB (pruned {words}); times are as if it did"
    ]
    assert [*misfit(best, best, 30e9)] == []
