"""`prunecast sweep`: which cases are asked for, and what is printed of them."""

from pathlib import Path

import pytest

from prunecast.cli import sweep as module
from prunecast.errors import BadInput
from prunecast.workload.graph import Pass
from prunecast.workload.load import load_workload
from prunecast.workload.timed_passes import BATCH

ONE = (
    "sweep",
    "-o",
    "s.sqlite",
    "--shape",
    "64x64x64",
    "--sparsity",
    "0.5",
    "--kernel",
    "stspmm",
    "--pattern",
    "vector-wise:128",
    "--workers",
    "1",
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_shapes_of_a_workload_are_those_of_all_its_products_once():
    """Layers that are customarily not pruned too."""
    layers = load_workload("bert-small", [Pass(BATCH)], target=["re:.*"]).layers.values()
    found = module._shapes_of(["bert-small"])
    assert len(found) == len(set(found)) < len(layers)
    assert set(found) == {(*layer.shape, layer.n) for layer in layers}
    assert module._shapes_of(["bert-small", "bert-small"]) == found
    both = module._shapes_of(["bert-small", "resnet18"])
    assert set(both) == {*found, *module._shapes_of(["resnet18"])}
    assert module._shapes_of([]) == []
    with pytest.raises(BadInput, match="'nothing' is no standard model; standard models: resnet18"):
        module._shapes_of(["nothing"])


@pytest.mark.parametrize("text", ["64x64", "64x64x64x64", "axbxc", "", "64,64,64", "6.5x64x64"])
def test_a_shape_has_three_whole_numbers(text):
    assert module._sizes("4096x128x7") == (4096, 128, 7)
    with pytest.raises(BadInput, match="--shape must be like 4096x4096x2048, got "):
        module._sizes(text)


def test_what_the_file_holds_is_known_and_only_the_first_rows_are_printed(run, monkeypatch):
    """A matrix of 64 rows has no vectors of 128, which is told; the dense row of each shape is a case."""
    out = run(*ONE)[1]
    assert "2 cases: 0 known, 2 computed, 1 of them cannot be run (the file says why); s.sqlite" in out
    assert "more rows" not in out
    out = run(*ONE, "--shape", "128x128x64")[1]
    assert "4 cases: 2 known, 2 computed; s.sqlite" in out
    rows = [line for line in out.splitlines() if line.startswith("h200-sxm")]
    for most in (len(rows), len(rows) - 1):
        monkeypatch.setattr(module, "MOST_SHOWN", most)
        out = run(*ONE, "--shape", "128x128x64")[1]
        assert [line for line in out.splitlines() if line.startswith("h200-sxm")] == rows[:most]
        assert ("... 1 more rows: --csv or --json prints all." in out) == (most < len(rows))


@pytest.mark.parametrize("suffix", module.OTHER_FORMS)
def test_results_are_no_table(run, suffix):
    code, _, error = run("sweep", "-o", f"s{suffix.upper()}", "--shape", "64x64x64")
    assert code == 2
    assert "-o is an SQLite file" in error
    assert not list(Path().iterdir())


@pytest.mark.parametrize("left_out", [0, 1])
def test_cases_that_cannot_retain_as_much_are_counted_if_there_are_any(run, monkeypatch, left_out):
    told = []
    monkeypatch.setattr(module, "tell", lambda line, **_: told.append(line))
    monkeypatch.setattr("prunecast.codesign.sweep.at_equal_importance", lambda cases, _: cases[left_out:])
    run(*ONE, "--as-important-as", "tile-wise:64")
    words = [f"{left_out} cases are left out: they cannot retain as much as tile-wise:64."]
    assert [line for line in told if "left out" in line] == (words if left_out else [])
