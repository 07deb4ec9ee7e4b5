import csv
import io
import json

import pytest

from prunecast.hardware import gpu_names, load_gpu
from prunecast.hardware.spec import quantity_units
from prunecast.patterns import PATTERNS

FAST = ("--engine", "model", "--tokens", "256")
A = ("--target", "[bold]a[/].weight")


def test_alone_it_shows_where_to_start(run):
    code, out, _ = run()
    assert code == 0
    for command in ("prunecast gpus", "prunecast predict", "prunecast explain"):
        assert command in out


def test_help_lists_every_command(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in ("predict", "prune", "compare", "explain", "gpus", "patterns"):
        assert f"\n  {command} " in out
        assert run(command, "--help")[0] == 0


def test_defaults_in_words_look_like_others(run):
    text = " ".join(run("predict", "--help")[1].split())
    assert "C (M, N). [default: 4096]" in text
    assert "[default: simulator]" in text
    assert "[default: (" not in text


def test_version(run):
    from importlib.metadata import version

    assert run("--version")[:2] == (0, f"{version('prunecast')}\n")


def test_prune_writes_a_folder_that_predict_reads(run, model, tmp_path):
    code, out, _ = run("prune", model, "-o", "pruned", "--pattern", "tile-wise:64", "--sparsity", "0.5")
    assert code == 0
    assert "[bold]a[/].weight" in out
    assert sorted(path.name for path in (tmp_path / "pruned").iterdir()) == [
        "recipe.json",
        "tiles.npz",
        "weights.safetensors",
    ]
    code, out, _ = run("predict", "pruned/weights.safetensors", "--pattern", "zeros", *FAST, "--json")
    assert code == 0
    rows = json.loads(out)["predictions"]
    assert {row["sparsity"] for row in rows if row["kernel"] != "dense"} == {0.5}
    assert {row["kernel"] for row in rows} >= {"csr", "stspmm"}


def test_prune_prints_its_recipe(run, model, tmp_path):
    _, out, _ = run("prune", model, "-o", "pruned", "--json")
    assert json.loads(out) == json.loads((tmp_path / "pruned" / "recipe.json").read_text())


def test_compare_files(run, model):
    run("predict", model, *FAST, "-o", "a.json", "--no-crossovers")
    run("predict", model, *FAST, "-o", "b.json", "--no-crossovers", "--gpu", "t4", "--kernel", "csr")
    code, out, _ = run("compare", "a.json", "b.json")
    assert code == 0
    assert "[bold]a[/]" in out
    assert "and 4 more" in out
    for name in ("a.json (h200-sxm)", "b.json (t4)"):
        assert f"{name}: burst, launched in a graph, operands in DRAM\n" in out
    rows = list(csv.DictReader(io.StringIO(run("compare", "a.json", "b.json", "--csv")[1])))
    assert [row["kernel"] for row in rows] == ["dense", "csr"] * 2
    assert rows[0]["ratio a.json (h200-sxm)"] == "1.0"
    run("compare", "a.json", "b.json", "-o", "c.json")
    code, out, _ = run("compare", "a.json", "a.json", "--json")
    assert {tuple(row["ratio"]) for row in json.loads(out)["rows"]} == {(1.0, 1.0)}


def test_compare_gpus(run, model):
    code, out, _ = run("compare", model, "--gpu", "t4", "--gpu", "l4", "--kernel", "stspmm", *FAST, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["columns"] == ["t4", "l4"]
    assert len(document["rows"]) == 4
    options = ("--kernel", "stspmm", *FAST, "--state", "sustained")
    out = run("compare", model, "--gpu", "t4", "--gpu", "l4", *options)[1]
    assert out.startswith("sustained, launched in a graph, operands in DRAM\n")


def test_a_sweep_names_the_conditions_of_its_times(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ("--shape", "256x256x256", "--kernel", "stspmm", "--sparsity", "0.5", "-o", "r.sqlite")
    _, out, _ = run("sweep", *options)
    assert out.startswith("burst, launched in a graph, operands in DRAM\n")
    assert "conditions" not in out
    _, out, _ = run("sweep", *options, "--state", "sustained", "--launch", "stream")
    assert "sustained, launched in a stream, operands in DRAM\n" in out
    assert [line.count("sustained, stream") for line in out.splitlines()].count(1) == 2


def test_explain_prints_sections_and_advice(run, model):
    code, out, _ = run("explain", model, *A, "--tokens", "256")
    assert code == 0
    places = [out.index(title) for title in ("Speed of light", "Roofline", "Occupancy", "Work distribution")]
    assert places == sorted(places)
    assert out.index("Where the time goes") < out.index("What would help")
    assert "#" in out
    document = json.loads(run("explain", model, *A, *FAST, "--kernel", "csr", "--json")[1])
    assert document["predictions"][0]["kernel"] == "csr"
    rows = list(csv.DictReader(io.StringIO(run("explain", model, *A, *FAST, "--csv")[1])))
    assert list(rows[0]) == ["section", "name", "value", "unit"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "burst, launched in a graph, operands in DRAM"),
        (("--launch", "stream"), "burst, launched in a stream, operands in DRAM"),
        (("--state", "sustained"), "sustained, launched in a graph, operands in DRAM"),
    ],
)
def test_explain_tells_the_conditions_of_its_time(run, model, options, words):
    code, out, _ = run("explain", model, *A, *FAST, *options)
    assert code == 0
    assert out.splitlines()[0].endswith(f", {words}")


def test_an_explanation_can_be_compared(run, model):
    run("explain", model, *A, *FAST, "-o", "a.json")
    run("predict", model, *FAST, "-o", "b.json", "--no-crossovers")
    assert run("compare", "a.json", "b.json")[0] == 0


def test_gpus_lists_all(run):
    code, out, _ = run("gpus")
    assert code == 0
    rows = json.loads(run("gpus", "--json")[1])["gpus"]
    assert sorted(row["name"] for row in rows) == gpu_names()
    assert rows == sorted(rows, key=lambda row: (row["compute_capability"], row["name"]))
    shown = [line.split()[0] for line in out.splitlines() if line.startswith(tuple(gpu_names()))]
    assert shown == [row["name"] for row in rows]


def test_gpus_say_which_times_they_were_held_against(run):
    times = {row["name"]: row["checked_against"] for row in json.loads(run("gpus", "--json")[1])["gpus"]}
    own = {name for name, said in times.items() if said.endswith(" own")}
    assert own == {"h100-sxm", "h200-sxm"}
    assert times["rtx-4090"].startswith("published ")
    assert times["jetson-agx-thor"] == "none"


def test_a_part_of_names_lists_the_gpus_that_have_it(run):
    rows = json.loads(run("gpus", "A100", "--json")[1])["gpus"]
    assert [row["name"] for row in rows] == [name for name in gpu_names() if "a100" in name]


def test_one_gpu_shows_every_number_with_its_source(run):
    document = json.loads(run("gpus", "h200-sxm", "--json")[1])
    assert {row["quantity"] for row in document["quantities"]} == set(quantity_units())
    assert all(row["kind"] and row["source"] and row["unit"] for row in document["quantities"])
    assert document["spec_hash"] == load_gpu("h200-sxm").fingerprint
    _, out, _ = run("gpus", "h200-sxm")
    assert all(name in out for name in quantity_units())
    assert (
        len(list(csv.reader(io.StringIO(run("gpus", "h200-sxm", "--csv")[1])))) == len(quantity_units()) + 1
    )


def test_one_gpu_shows_the_costs_of_kernels(run):
    document = json.loads(run("gpus", "a100-sxm4-80gb", "--kernels", "--json")[1])
    assert document["architecture"] == "sm_80"
    names = [row["cost"] for row in document["costs"]]
    assert all(row["source"] and row["unit"] and row["meaning"] and row["date"] for row in document["costs"])
    assert {row["kind"] for row in document["costs"] if row["kernel"] == "tile"} == {"guess"}
    _, out, _ = run("gpus", "a100-sxm4-80gb", "--kernels")
    assert all(name in out for name in names)
    assert (
        len(list(csv.reader(io.StringIO(run("gpus", "h200-sxm", "--kernels", "--csv")[1])))) > len(names) // 2
    )


def test_costs_are_of_one_gpu(run):
    code, _, errors = run("gpus", "--kernels")
    assert (code, errors) == (2, "prunecast: error: --kernels needs the NAME of a GPU\n")


def test_patterns_lists_all_and_says_what_each_means(run):
    code, out, _ = run("patterns")
    assert code == 0
    assert all(pattern.example in out for pattern in PATTERNS.values())
    rows = {row["family"]: row for row in json.loads(run("patterns", "--json")[1])["patterns"]}
    assert all(len(rows[family]["meaning"].split()) > 2 for family in PATTERNS)
    assert rows["tile-wise"]["kernels"] == ["tile-wise", "stspmm", "small-n", "csr"]


def test_peaks_of_gpus_are_those_that_nvidia_publishes(run):
    """From the whitepaper of Turing: 320 tensor cores with 65 TFLOP/s of fp16, 320 GB/s and 4 MiB of L2."""
    rows = {row["name"]: row for row in json.loads(run("gpus", "--json")[1])["gpus"]}
    t4 = rows["t4"]
    assert (t4["compute_capability"], t4["sm_count"], t4["l2_bytes"]) == (7.5, 40, 4 * 2**20)
    assert t4["tensor_fp16_peak_flop_per_s"] == pytest.approx(65e12, rel=0.01)
    assert t4["dram_peak_bytes_per_s"] == pytest.approx(320e9, rel=0.01)
    assert rows["h200-sxm"]["compute_capability"] == 9.0
    (line,) = (line for line in run("gpus")[1].splitlines() if line.startswith("t4 "))
    assert line.split()[1:3] == ["7.5", "40"]
