"""The accuracy studies: maps that travel mean what they did, and the scripts run from end to end in small."""

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "accuracy"
RECORDS = ROOT / "benchmarks" / "measured"


@pytest.fixture
def scripts(monkeypatch):
    """The folder of the scripts as they see it themselves."""
    monkeypatch.syspath_prepend(SCRIPTS)
    monkeypatch.setenv("ACCURACY_TINY", "")
    for name in ("settings", "pruning", "stored_maps", "study_plans", "picture"):
        sys.modules.pop(name, None)
    yield
    for name in ("settings", "pruning", "stored_maps", "study_plans", "picture"):
        sys.modules.pop(name, None)


def weights():
    rng = np.random.default_rng(0)
    return {
        "up": rng.normal(size=(128, 64)).astype(np.float32),
        "down": rng.normal(size=(64, 128)).astype(np.float32),
    }


class Drawn(NamedTuple):
    case: str
    target: float
    score: float
    predicted_us: float | None
    measured_us: float | None


def test_names_in_the_picture_do_not_lie_on_each_other(scripts):
    from picture import draw

    near = [Drawn(f"pattern:{place}", 0.5, 1 + 0.001 * place, 100 + place, None) for place in range(12)]
    rows = [Drawn("dense", 0.0, 0.9, 200.0, 210.0), *near, Drawn("unstructured", 0.9, 1.0, 9000.0, 9500.0)]
    figure = draw(rows, (0.5, 0.75, 0.9), "loss")
    assert [axes.get_title() for axes in figure.axes] == ["50% pruned", "90% pruned"]
    names = [text.get_text() for axes in figure.axes for text in axes.texts]
    assert sorted(names) == sorted(["dense", *(row.case for row in near), "dense", "unstructured"])
    for axes in figure.axes:
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("pattern", ["tile-wise:32", "shuffled-block:32", "atp-2d:32", "dense-block:4"])
def test_tile_maps_are_stored_whole(scripts, pattern, tmp_path):
    from pruning import prune
    from settings import Case
    from stored_maps import restore, store

    case = Case(pattern, 0.75)
    pruned = prune(weights(), case)
    store(tmp_path, case, pruned)
    for name, kept in restore(tmp_path, case).items():
        assert kept.tiles.fingerprint() == pruned.maps[name].fingerprint()


@pytest.mark.parametrize(
    ("pattern", "sparsity"), [("unstructured", 0.75), ("balanced:16", 0.75), ("2:4", 0.5)]
)
def test_single_elements_are_drawn_anew_with_the_counts_of_every_row(scripts, pattern, sparsity, tmp_path):
    from pruning import prune
    from settings import Case
    from stored_maps import restore, store

    case = Case(pattern, sparsity)
    pruned = prune(weights(), case)
    store(tmp_path, case, pruned)
    for name, kept in restore(tmp_path, case).items():
        assert np.array_equal(kept.elements.kept_per_row, pruned.maps[name].kept_per_row)


def test_tiles_with_two_of_four_inside_come_back_as_such(scripts, tmp_path):
    from pruning import prune
    from settings import Case
    from stored_maps import restore, store

    case = Case("tvw:32", 0.75)
    pruned = prune(weights(), case)
    store(tmp_path, case, pruned)
    for name, kept in restore(tmp_path, case).items():
        assert kept.nested.tiles.fingerprint() == pruned.maps[name].tiles.fingerprint()
        assert kept.nested.density == pytest.approx(pruned.maps[name].density, abs=0.02)


def test_the_statistics_are_those_of_all_layers_together(scripts):
    from pruning import importance_of, prune, statistics
    from settings import Case

    found = statistics(importance_of(weights()), prune(weights(), Case("tile-wise:32", 0.75)))
    assert found["sparsity"] == pytest.approx(0.75, abs=0.01)
    assert 0.25 < found["retained_importance"] < 0.5
    assert found["worst_imbalance"] >= found["mean_imbalance"] >= 1.0


def report():
    """The module of script 6, whose name begins with a digit."""
    spec = importlib.util.spec_from_file_location("report", SCRIPTS / "6_report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_times_are_compared_with_the_prediction_of_the_plans_that_ran(scripts):
    measured = {
        "a@0.5": {"one": {"us": 100.0}, "two": {"us": 50.0, "predicted_us": 60.0}, "three": {"us": 9.0}}
    }
    predicted = {"h200-sxm": {"a@0.5": {"one": 90.0, "two": 40.0}}}
    record = {"measured": {"cases": measured}, "predicted": {"gpus": predicted}}
    assert report().ratios(record) == {"a@0.5 one": 0.9, "a@0.5 two": 1.2}


@pytest.mark.parametrize("study", ["language", "digits"])
def test_records_have_a_prediction_for_everything_measured(scripts, study):
    record = json.loads((RECORDS / f"accuracy-{study}.json").read_text())
    found = report().ratios(record)
    measured = record["measured"]["cases"]
    assert set(found) == {f"{case} {kernel}" for case, kernels in measured.items() for kernel in kernels}
    assert all(0.3 < ratio < 3 for ratio in found.values())


@pytest.mark.slow
def test_the_scripts_run_from_end_to_end(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    environment = {**os.environ, "ACCURACY_TINY": "1", "PYTHONPATH": str(ROOT / "src")}

    def run(script, *arguments):
        command = [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
        subprocess.run(command, env=environment, check=True, timeout=1800, capture_output=True)

    cpu = ("--device", "cpu", "--processes", "1", "--only", "dense@,atp:,tile-wise:")
    run("1_train_language_model.py", "--out", tmp_path, "--device", "cpu")
    run(
        "2_tune_language_model.py",
        "--weights",
        tmp_path / "weights.safetensors",
        "--out",
        tmp_path / "lm",
        *cpu,
    )
    run("3_digits.py", "--out", tmp_path / "digits", *cpu)
    for study, folder in (("language", "lm"), ("digits", "digits")):
        predicted = tmp_path / f"{study}_predicted.json"
        run(
            "4_predict.py",
            "--study",
            study,
            "--maps",
            tmp_path / folder,
            "--out",
            predicted,
            "--engine",
            "model",
        )
        record = tmp_path / f"{study}.json"
        added = ("--add", tmp_path / folder / "tuned.json", predicted)
        run("6_report.py", "--study", study, "--record", record, "--docs", tmp_path, *added)
        found = json.loads(record.read_text())
        runs = [run for part in found["tuned"] for case in part["cases"] for run in case["runs"]]
        assert runs
        assert not any("failed" in run for run in runs)
        assert (tmp_path / f"{study}.svg").exists()
        assert "| atp:" in (tmp_path / f"{study}.md").read_text()
